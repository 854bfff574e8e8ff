"""Sphinx settings. Built by `make docs`, without any network."""

import os
import re
from importlib.metadata import version as version_of

import moml

# The pages' examples compile more than they compute: with little optimisation they take a third of
# the time. Those of docstrings are run as users run them.
FLAGS = ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",  # and where XLA knows it, as in 0.10:
        *(FLAGS if version_of("jaxlib").startswith("0.10.") else []),
    ]
)

project = "moml"
author = copyright = "The moml developers"
release = version = moml.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebooks` executes them, and stores their outputs

autodoc_typehints = "none"  # shapes stand in the source; rendered they are noise
autodoc_member_order = "bysource"
napoleon_attr_annotations = False

doctest_test_doctest_blocks = ""  # docstring examples are pytest's; here the pages' own
doctest_global_setup = """
import jax, jax.numpy as jnp, numpy as np
"""

html_theme = "furo"
html_title = f"moml {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["moml.css"]
html_show_sphinx = False


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text: `names` are code, indented formulas are set as they stand."""
    out, kind = [], ""
    for before, line in zip(["", *lines], lines, strict=False):
        if re.fullmatch("-{3,}", line) and out:  # a section of numpy's form
            out[-1] = f"**{out[-1]}**"
            line, kind = "", "text"
        elif re.fullmatch("-{3,}", before):
            kind = "example" if line.startswith(">>>") else "text"
        if line and not before:  # a new paragraph
            kind = "example" if line.startswith(">>>") else "formula" if line[0] == " " else "text"
            if kind == "formula":
                out += ["::", ""]
        if kind == "text":
            line = re.sub(r"`([^`]+)`", r"``\1``", line.replace("|", "\\|"))
        out.append(line)
    lines[:] = out


def setup(app):
    app.connect("autodoc-process-docstring", plain_docstring)
