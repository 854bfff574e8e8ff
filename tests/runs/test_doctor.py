import jax
import pytest

from moml.runs import doctor
from tests.support.program import call


def test_it_says_what_there_is_and_tests_an_identity(monkeypatch, capsys):
    monkeypatch.delenv("MOML_DATA", raising=False)
    code, out, _ = call(capsys, "doctor")
    assert code == 0
    told = {line[:18].strip(): line[18:] for line in out.splitlines()}
    assert told["jax"] == jax.__version__
    assert str(jax.devices()[0]) in told["jax devices"]
    assert "set MOML_DATA" in told["data sets"]
    assert told["free memory"].endswith(" GB") and int(told["cores"]) >= 1
    assert told["self-test"].startswith("v1 at beta = 1 is MAML: ")
    assert told["self-test"].endswith(": ok")


@pytest.mark.parametrize("apart", [1.0, float("nan")])
def test_a_wrong_identity_is_code_1(monkeypatch, capsys, apart):
    monkeypatch.setattr(doctor, "identity", lambda: apart)
    code, out, _ = call(capsys, "doctor")
    assert code == 1 and out.endswith(": WRONG\n")


def test_data_sets_are_found_by_their_names(monkeypatch, tmp_path):
    for name in ("mnist", "cifar-100-binary", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").touch()
    monkeypatch.setenv("MOML_DATA", str(tmp_path))
    told = dict(doctor.facts())
    assert told["data: mnist"] == str(tmp_path / "mnist")
    assert told["data: cifar100"] == str(tmp_path / "cifar-100-binary")
    assert told["data: cifar10"] == told["data: omniglot"] == f"not in {tmp_path}"
    monkeypatch.setenv("MOML_DATA", str(tmp_path / "nowhere"))
    assert "MOML_DATA must be a folder" in dict(doctor.facts())["data sets"]
