"""How the models of a table are trained: on held-out tasks, or cross-fitted where tasks are few."""
