"""The paper's own experiments: settings, printed figures, protocols."""
