"""Jobs in folders: train, resume, sweep, score, doctor."""
