from moml.config.config import PROBLEMS
from moml.config.problems import Table
from moml.report.page.runs import MEASURES, measure_of


def test_every_problem_has_a_measure_and_a_table_two():
    assert all(measure_of(problem()) for problem in PROBLEMS.values())
    assert set(MEASURES) == set(PROBLEMS)
    numbers, classes = measure_of(Table()), measure_of(Table(classes=3))
    assert not numbers.higher and classes.higher and numbers.of == classes.of
