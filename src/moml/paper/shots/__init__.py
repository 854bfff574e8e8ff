"""When memory pays: error over beta and shots."""
