"""A real Kafka broker on loopback, from its Maven artifacts, and Spark's connector to it."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from pyspark import __version__ as SPARK_VERSION

from maven_jars import UnavailableError, jars, java

KAFKA_VERSION = "4.3.1"
BROKER = (
    f'<dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"/>',
    f'<dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"'
    ' transitive="false"/>',
    '<dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36"/>',
)
CONNECTOR = (
    '<dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{}"/>',
    '<exclude org="org.apache.hadoop"/>',
    '<exclude org="org.scala-lang"/>',
)
# A registry may lag, or be a copy with holes. 4.2.0 works with Spark 4.3.0 but not with 4.1; tokens
# are loaded with the connector, and not used.
OLDER = ("4.2.0", "4.1.0")
OLD_TOKENS = (
    '<override org="org.apache.spark" module="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"/>'
)
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CLUSTER = "unskew-tests-unskew-tg"
LIMIT_S = 60
SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{servers},CONTROLLER://{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{controller}
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
"""


def broker_jars() -> Path:
    """Return the folder of the broker's jars."""
    return jars(f"kafka-{KAFKA_VERSION}", BROKER)


def connector_jars() -> str:
    """Return Spark's connector as ``spark.jars`` takes it: the first that there is."""
    dependency, *excluded = CONNECTOR
    older = [version for version in OLDER if version < SPARK_VERSION]
    tries = [(SPARK_VERSION, ""), *((version, OLD_TOKENS) for version in (SPARK_VERSION, *older))]
    errors = []
    for version, override in tries:
        elements = [dependency.format(version), *excluded, override]
        try:
            folder = jars(f"kafka-for-spark-{SPARK_VERSION}", elements)
        except UnavailableError as error:
            errors.append(error)
        else:
            return ",".join(map(str, sorted(folder.glob("*.jar"))))
    raise errors[0]


class Broker:
    """One broker that is its own controller (KRaft); a context that starts and stops it.

    It can be started again after `stop` or `kill`, on the same data and the same port.

    Parameters
    ----------
    folder
        For its data, its settings and its log.

    Attributes
    ----------
    servers
        Its address, for ``kafka.bootstrap.servers``.
    """

    def __init__(self, folder: Path) -> None:
        options = (*JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        self._java = [java(), *options, "-cp", f"{broker_jars()}/*"]
        self.servers, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        folder.mkdir(parents=True)
        self._log = folder / "broker.log"
        self._settings = folder / "server.properties"
        self._settings.write_text(
            SETTINGS.format(servers=self.servers, controller=controller, data=folder / "data")
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", self._settings)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._settings)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        limit = time.monotonic() + LIMIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise RuntimeError(f"the broker did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Let it stop as it likes to, and wait for that."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop it at once."""
        self._end(signal.SIGKILL)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        create = ("--create", "--topic", name, "--partitions", str(partitions))
        self._run(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.servers, *create
        )

    def _answers(self) -> bool:
        host, port = self.servers.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_S)
            self._process = None

    def _run(self, command: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [*self._java, command, *arguments], capture_output=True, text=True, timeout=LIMIT_S
        )
        if done.returncode:
            raise RuntimeError(f"{command} failed: {(done.stdout + done.stderr)[-2000:]}")


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
