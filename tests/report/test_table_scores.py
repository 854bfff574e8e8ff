import pytest

from moml.report.terminal import print_scores, verdict

MODELS = ("personal", "pooled", "per-task", "shrunken-mean")


def rows(metric, before, after):
    """Scores before adaptation and after 3 rows, in the order of MODELS."""
    rest = {"std": 0.1, "tasks": 1, "rows": 1200}
    return [
        {"model": model, "shots": k, "metric": metric, "mean": mean} | rest
        for k, means in ((0, before), (3, after))
        for model, mean in zip(MODELS, means, strict=True)
    ]


@pytest.mark.parametrize(
    "after, said",
    [
        ((0.5, 0.9, 0.8, 0.7), "personalisation pays: rmse 0.5 after 3 rows, 0.9 without any"),
        ((0.895, 0.9, 0.8, 0.7), "personalisation does not pay on this table: rmse 0.895"),
        ((0.8, 0.9, 0.9, 0.7), "without any; but shrunken-mean alone has 0.7"),
    ],
)
def test_verdict_on_personalisation(after, said):
    assert said in verdict(rows("rmse", (1.0, 0.9, 1.2, 1.2), after))


@pytest.mark.parametrize(
    "above, said",
    [
        ((-0.1, 0.5), "1 task cannot tell whether personalisation pays: rmse 0.8 after 3 rows"),
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


def test_classes_are_judged_by_their_log_loss():
    both = rows("accuracy", (50.0, 50.0, 40.0, 40.0), (90.0, 50.0, 60.0, 60.0))
    both += rows("log_loss", (0.6, 0.6, 0.7, 0.7), (0.7, 0.6, 0.8, 0.8))
    assert verdict(both).startswith("personalisation does not pay on this table: log loss 0.7")


def test_a_table_has_a_line_a_model(capsys):
    print_scores(rows("rmse", (1.0, 0.9, 1.2, 1.2), (0.5, 0.9, 0.8, 0.7)), "y")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rmse of y by known rows: 1 held-out task, 1,200 rows"
    assert [line.split()[1] for line in lines if line.startswith("│")] == list(MODELS)
