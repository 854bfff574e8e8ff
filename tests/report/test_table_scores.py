import pytest

from moml.report import terminal
from moml.report.terminal import print_scores, verdict

MODELS = ("personal", "pooled", "per-task", "shrunken-mean")


def rows(metric, before, after):
    """Scores before adaptation and after 3 rows, in the order of MODELS."""
    rest = {"std": 0.1, "tasks": 9, "rows": 1200}
    return [
        {"model": model, "shots": k, "metric": metric, "mean": mean} | rest
        for k, means in ((0, before), (3, after))
        for model, mean in zip(MODELS, means, strict=False)
    ]


@pytest.mark.parametrize(
    "after, said",
    [
        ((0.5, 0.9, 0.8, 0.7), "personalisation pays: rmse 0.5 after 3 rows, 0.9 without any"),
        ((0.895, 0.9, 0.8, 0.7), "personalisation does not pay on this table: rmse 0.895"),
        ((0.895, 0.9, 0.8, 0.7), "0.9 without any; but shrunken-mean alone has 0.7"),
        ((0.8, 0.9, 0.9, 0.7), "without any; but shrunken-mean alone has 0.7"),
    ],
)
def test_verdict_on_personalisation(after, said):
    assert said in verdict(rows("rmse", (1.0, 0.9, 1.2, 1.2), after))


@pytest.mark.parametrize(
    "above, said",
    [
        ((-0.1, 0.5), "9 tasks cannot tell whether personalisation pays: rmse 0.8 after 3 rows"),
        ((0.1, 0.5), "personalisation pays: rmse 0.8 after 3 rows"),
    ],
)
def test_a_verdict_needs_an_interval_that_supports_it(above, said):
    given = rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.8, 0.9, 0.9, 0.7))
    for row in given:
        row["above"] = list(above)
    assert verdict(given).startswith(said)
    assert verdict(given).endswith("shrunken-mean alone has 0.7, which may be chance")
    given[-1]["above"] = [-0.3, -0.1]
    assert verdict(given).endswith("shrunken-mean alone has 0.7")


def test_a_verdict_names_lightgbm_where_it_is_best():
    given = rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.8, 0.9, 0.9, 0.7))
    given += [{**row, "model": "lightgbm", "mean": 0.6} for row in given[:1] + given[4:5]]
    assert verdict(given).endswith("0.9 without any; but lightgbm alone has 0.6")


def test_a_verdict_without_rivals():
    given = rows("rmse", (1.0, 0.9), (0.5, 0.9))
    assert verdict(given) == "personalisation pays: rmse 0.5 after 3 rows, 0.9 without any"


def test_classes_are_judged_by_their_log_loss():
    both = rows("accuracy", (50.0, 50.0, 40.0, 40.0), (90.0, 50.0, 60.0, 60.0))
    both += rows("log_loss", (0.6, 0.6, 0.7, 0.7), (0.7, 0.6, 0.8, 0.8))
    assert verdict(both).startswith("personalisation does not pay on this table: log loss 0.7")


def test_a_table_has_a_line_for_each_number_of_known_rows(capsys):
    print_scores(rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.5, 0.9, 0.8, 0.7)), "y")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rmse of y by known rows: 9 held-out tasks, 1,200 rows"
    assert [line.split() for line in lines if "model" in line or "pooled" in line] == [
        ["rows", *MODELS]
    ]
    assert [line.split()[0] for line in lines if "± 0.1" in line] == ["0", "3"]
    assert lines[-1] == "± is the standard deviation of the tasks' own scores"


def test_scores_of_five_models_fit_on_80_columns(capsys, monkeypatch):
    monkeypatch.setattr(terminal.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    given = []
    for k in range(10):
        for model in (*MODELS, "lightgbm"):
            one = {"model": model, "shots": k, "metric": "rmse", "mean": 0.12345, "std": 0.0678}
            given.append(one | {"tasks": 9, "rows": 90})
    print_scores(given, "y")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.count("0.1235 ± 0.068") for line in lines) == 50
    assert max(map(len, lines)) <= 80


def test_differences_to_the_personal_model_have_intervals(capsys):
    given = rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.5, 0.9, 0.8, 0.7))
    for row in given:
        row["above"] = [0.1234, row["mean"]]
    print_scores(given, "y")
    assert (
        "score minus personal after 3 rows, 95 % interval over 9 tasks: pooled 0.123 to 0.9, "
        "per-task 0.123 to 0.8, shrunken-mean 0.123 to 0.7\n"
    ) in capsys.readouterr().out


def test_few_tasks_support_no_verdict(capsys):
    given = rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.5, 0.9, 0.8, 0.4))
    for row in given:
        row |= {
            "above": [-0.3, -0.1] if row["model"] == "shrunken-mean" else [0.1, 0.5],
            "tasks": 5,
        }
    assert verdict(given).startswith("5 tasks cannot tell whether personalisation pays: rmse 0.5")
    assert verdict(given).endswith("; but shrunken-mean alone has 0.4, which may be chance")
    print_scores(given, "y")
    assert "interval" not in capsys.readouterr().out


def test_large_scores_have_no_exponents(capsys):
    print_scores(rows("rmse", (95129.6, 9e4, 9e4, 9e4), (12512.3, 9e4, 9e4, 9e4)), "price")
    assert "95,130 ± 0.1" in capsys.readouterr().out
    said = verdict(rows("rmse", (95129.6, 9e4, 9e4, 9e4), (12512.3, 9e4, 9e4, 9e4)))
    assert said == "personalisation pays: rmse 12,510 after 3 rows, 90,000 without any"


@pytest.mark.parametrize(
    "above, said",
    [((-0.1, 0.1), "9 tasks cannot tell"), ((-0.1, 0.001), "personalisation does not pay")],
)
def test_that_it_does_not_pay_needs_support_too(above, said):
    given = rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.91, 0.9, 1.0, 1.0))
    for row in given:
        row["above"] = list(above)
    assert verdict(given).startswith(said)
