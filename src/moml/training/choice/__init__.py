"""The choice of beta on held-out tasks: a population of trainings that is thinned to one."""
