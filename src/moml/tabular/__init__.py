"""A user's own table: train, predict, adapt, evaluate, and the scikit-learn estimators."""
