"""Result rows and scores as tables on a terminal."""
