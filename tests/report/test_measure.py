import pytest

from moml.config.config import PROBLEMS, Config
from moml.config.problems import Clients, Table
from moml.config.problems.clients import SHAPES
from moml.report.page.runs import MEASURES, measure_of
from moml.report.page.train import tasks_of


def test_every_problem_has_a_measure_and_a_table_two():
    assert all(measure_of(problem()) for problem in PROBLEMS.values())
    assert set(MEASURES) == set(PROBLEMS)
    numbers, classes = measure_of(Table()), measure_of(Table(classes=3))
    assert not numbers.higher and classes.higher and numbers.of == classes.of


@pytest.mark.parametrize("dataset", SHAPES)
def test_every_data_set_of_clients_has_a_name(dataset):
    problem = Clients(dataset=dataset)
    assert tasks_of(Config(problem)).startswith(f"{problem.n} clients of ")
