"""The files that greet contributors are valid, and agree with what the project really runs."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import demopool
from demopool.gpu_report import building

ROOT = Path(__file__).parent.parent
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def steps_of_lint() -> list[str]:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]


def test_hooks_are_the_checks_of_make_lint() -> None:
    """The hook may format, where ``make lint`` only asks whether it would."""
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert all(hook["language"] == "system" for hook in hooks)
    checked = [re.sub(r"( --check)? \.$", "", step) for step in steps_of_lint()]
    assert [hook["entry"] for hook in hooks] == checked


def test_the_workflow_runs_what_every_submission_runs() -> None:
    workflow = read(".github/workflows/ci.yml")
    # YAML 1.1 reads the key "on" as true.
    assert {"push", "pull_request"} <= set(workflow[True])
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_is_a_form(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    kinds = {"checkboxes", "dropdown", "input", "markdown", "textarea"}
    assert {item["type"] for item in form["body"]} <= kinds
    names = [item["id"] for item in form["body"]]
    assert len(names) == len(set(names))
    assert all(item["attributes"]["label"] for item in form["body"])


def test_a_wrong_result_comes_with_the_check() -> None:
    texts = {path.stem: path.read_text() for path in TEMPLATES}
    assert set(texts) == {"gpu-benchmark", "wrong-result"}
    assert all("`demopool check --json`" in text for text in texts.values())


def test_a_gpu_comes_with_the_archive_of_its_report_first() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/gpu-benchmark.yml").read_text())
    first = form["body"][0]
    assert first["validations"]["required"]
    assert building.ARCHIVE in first["attributes"]["description"]
    assert "render" not in first["attributes"], "a field of code takes no files"


def test_the_citation_names_the_paper() -> None:
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == demopool.__version__
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors", "year"} <= set(paper)
    assert [author["family-names"] for author in paper["authors"]] == ["Lin", "Maji", "Koniusz"]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert paper["url"] in urls.values()


def test_contributors_are_sent_to_files_that_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "CONTRIBUTING.md").read_text())
    assert "docs/contributing.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
