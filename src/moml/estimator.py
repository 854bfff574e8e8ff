"""The scikit-learn estimators, where users import them from: see `moml.tabular.estimator`."""

from moml.tabular.estimator import UNMET, MomlClassifier, MomlRegressor

__all__ = ["UNMET", "MomlClassifier", "MomlRegressor"]
