"""Parts that methods are composed of: adaptations, curvatures, memories, outer rules, schedules."""
