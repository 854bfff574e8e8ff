"""What a person starts: training, sweeps, evaluation. Files and clocks are allowed from here on."""
