"""The table of all applications, by their names on the command line."""

from unskew.apps.decision_tree import DECISION_TREE
from unskew.apps.hashtags import HASHTAGS
from unskew.apps.heavy_hitters import HEAVY_HITTERS
from unskew.apps.in_degree import IN_DEGREE
from unskew.apps.naive_bayes import NAIVE_BAYES
from unskew.apps.tpch_q5 import TPCH_Q5
from unskew.apps.trade_join import TRADE_JOIN
from unskew.apps.vwap import VWAP
from unskew.apps.word_count import WORD_COUNT

_ALL = (
    WORD_COUNT,
    HASHTAGS,
    VWAP,
    HEAVY_HITTERS,
    NAIVE_BAYES,
    DECISION_TREE,
    TRADE_JOIN,
    TPCH_Q5,
    IN_DEGREE,
)

APPS = {app.name: app for app in _ALL}
