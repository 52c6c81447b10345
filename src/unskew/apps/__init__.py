"""The papers' applications, a file each: real jobs, and how unskew is used.

`APPS` has them by the names that ``unskew run`` and ``unskew compare`` know.
"""

from unskew.apps.base import App, Learner
from unskew.apps.decision_tree import DECISION_TREE
from unskew.apps.hashtags import HASHTAGS
from unskew.apps.in_degree import IN_DEGREE
from unskew.apps.naive_bayes import NAIVE_BAYES
from unskew.apps.trade_join import TRADE_JOIN
from unskew.apps.vwap import VWAP
from unskew.apps.word_count import WORD_COUNT

APPS = {
    app.name: app
    for app in (WORD_COUNT, HASHTAGS, VWAP, NAIVE_BAYES, DECISION_TREE, TRADE_JOIN, IN_DEGREE)
}

__all__ = ["APPS", "App", "Learner"]
