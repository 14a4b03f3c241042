"""What the papers and the packaging say about this tree is so."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("understudy", "broker", "ha", "spark", "resource_agent")
PAPERS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("[!.]*/README.md"),
    *ROOT.glob("[bdp]*/*/README.md"),
]
CROWDED: dict[str, str] = {}
"""Folders that may have more than `MOST` modules, each with its reason."""
MOST = 25
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_imports_run_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert (ROOT / package / "__init__.py").exists()


def test_a_reader_can_overlook_each_folder() -> None:
    """By eye, a folder of more is searched and not read: divide it by what its modules are for."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = [Path(line) for line in listed.stdout.splitlines() if not line.endswith("__init__.py")]
    counts = Counter(str(path.parent) for path in modules)
    assert counts["broker/model/queue"] > 10
    crowded = {folder for folder, count in counts.items() if count > MOST}
    assert crowded == CROWDED.keys()


def test_commands_in_the_papers_are_in_the_makefile() -> None:
    named = {
        command
        for paper in PAPERS
        for command in re.findall(r"(?:^    |`)make ([a-z]+)", paper.read_text(), re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    assert named <= targets()


def test_the_makefile_has_what_it_promises_and_helps_by_default() -> None:
    assert {"help", "setup", "demo", "test", "check", "bench", "sim", "clean", "format"} <= targets()
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert "make demo" in done.stdout


def test_the_architecture_names_what_is_there() -> None:
    """Each `path/to/file.py` exists, and has the functions and classes that are named after it."""
    paper = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`(?:: ((?:`\w+`(?:, )?)+))?", paper)
    assert len(named) > 40
    for path, names in named:
        source = (ROOT / path).read_text()
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^ *(?:def|class) {name}\b", source, re.MULTILINE), f"{path} has no {name}"


def test_a_page_says_how_expected_texts_are_rewritten() -> None:
    paper = (ROOT / "docs" / "contributing" / "testing.md").read_text()
    found = 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        for switch in re.findall(r'environ\.get\("(REWRITE_\w+)"\)', path.read_text()):
            assert switch in paper and str(path.relative_to(ROOT)) in paper, f"{switch} of {path.name}"
            found += 1
    assert found


def test_marks_of_tests_are_named_in_their_files() -> None:
    """`tests.tiers.marks_none_of` goes by that: a mark that another module gives would be overlooked."""
    mark = re.compile(r"mark\.(system|tools|smoke|cluster|soak)\b")
    modules = [file for file in ROOT.glob("tests/**/*.py") if not file.name.startswith("test_")]
    assert [file.name for file in modules if mark.search(file.read_text())] == ["tiers.py"]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 100] == []


def test_prose_is_wrapped() -> None:
    """At 120; tables, code and what a program writes between two marks are as long as they are."""
    long = []
    for paper in PAPERS:
        made = r"<!-- (?:(?:durable|compare|federation): \w+|results) -->.*?<!-- end of \w+ -->"
        prose = re.sub(rf"^ *```.*?^ *```|{made}", "", paper.read_text(), flags=re.MULTILINE | re.DOTALL)
        for line in prose.splitlines():
            if len(line) > 120 and " " in line.strip() and not line.startswith(("|", "    ")):
                long.append(f"{paper.name}: {line[:60]}")
    assert long == []


def test_docs_use_the_words_of_the_glossary() -> None:
    """In code and in the glossary itself the older words may stand."""
    older = r"heirs?|papers|strangers?|kin|graves|bereft|milestones?|quiesce points?|the books"
    for paper in PAPERS:
        if paper.name == "glossary.md":
            continue
        prose = re.sub(r"```.*?```|`[^`]*`", "", paper.read_text(), flags=re.DOTALL)
        found = re.findall(rf"\b(?:{older})\b", prose, re.IGNORECASE)
        assert not found, f"{paper.name}: {found}"


def test_links_in_the_papers_lead_somewhere() -> None:
    for paper in PAPERS:
        for target in re.findall(r"\]\(([^)#:]+)\)", paper.read_text()):
            assert (paper.parent / target).exists(), f"{paper.name} links to {target}"


def test_the_glossary_has_each_word_once() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    rows = [row for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE) if row[0] != "word"]
    words = [word for word, _ in rows]
    assert len(words) == len(set(words)) > 50
    for word, meaning in rows:
        assert meaning.endswith("."), word


def test_every_import_is_a_declared_dependency() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = {
        re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-")
        for requirement in [*PROJECT["dependencies"], *extras["spark"], *extras["amqp10"]]
    }
    own = {*PACKAGES, *sys.stdlib_module_names}
    binding = {key: ["python-qpid-proton"] for key in ("proton", "cproton_ffi")}  # it may not be installed
    brought = {**binding, **packages_distributions()}
    brought_by_spark = {"numpy", "pyarrow", "py4j", "google"}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for name in imported(ast.parse(path.read_text())) - own - brought_by_spark:
            names = {distribution.lower().replace("_", "-") for distribution in brought.get(name, [name])}
            assert names & declared, (
                f"{path.relative_to(ROOT)} imports {name}, which pyproject.toml does not name"
            )


def test_what_is_to_be_installed_is_this_project_and_has_that_extra() -> None:
    """On PyPI `understudy` is another project."""
    name, extras = PROJECT["name"], PROJECT["optional-dependencies"].keys()
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    for path in [*PAPERS, *sources]:
        for wanted, extra in re.findall(r"pip install '([\w.-]+)\[(\w+)\]'", path.read_text()):
            assert wanted in (name, "understudy-client", ".") and extra in extras, (
                f"{path.relative_to(ROOT)}: {wanted}[{extra}]"
            )


def imported(tree: ast.Module) -> set[str]:
    """Top-level names of all absolute imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("version", ["17.0.2", "21"])
def test_java_is_found_without_path_and_home(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "jdk-9-x", "9.0.1")
    fake_java(tmp_path / "a-java", version)
    fake_java(tmp_path / "z-jdk-25", "25.0.1")
    done = ensure_java(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "a-java"))


def test_without_java_one_line_names_what_to_install(tmp_path: Path) -> None:
    fake_java(tmp_path / "jdk-25", "25.0.1")
    done = ensure_java(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "openjdk-17-jre-headless" in done.stderr


def ensure_java(jvm_dirs: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing in its environment, and with a PATH on which no java is."""
    tools = jvm_dirs / "tools"
    tools.mkdir()
    script = (ROOT / "scripts" / "ensure_java.sh").read_text()
    # The script adds the usual folders to PATH; the machine's own java must not be found through those.
    script = re.sub(r"^PATH=.*$", f'PATH="{tools}"', script, flags=re.MULTILINE)
    for name in ("dirname", "readlink", "id"):
        found = next(Path(d, name) for d in ("/usr/bin", "/bin") if Path(d, name).exists())
        (tools / name).symlink_to(found)
    return subprocess.run(
        ["/bin/sh", "-c", script],
        env={"JVM_DIRS": str(jvm_dirs)},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_java(home: Path, version: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    java.chmod(0o755)


def test_scripts_are_executable_where_they_are_called_directly() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_guarantees_and_bad_inputs_are_numbered_without_gaps() -> None:
    guarantees = re.findall(
        r"^### (\d+)\. ", (ROOT / "docs" / "explanation" / "guarantees.md").read_text(), re.MULTILINE
    )
    assert [int(number) for number in guarantees] == list(range(1, 31))
    rows = re.findall(
        r"^\| (\d+)(?:-(\d+))? \|", (ROOT / "docs" / "reference" / "bad-inputs.md").read_text(), re.MULTILINE
    )
    numbers = [n for first, last in rows for n in range(int(first), int(last or first) + 1)]
    assert numbers == list(range(1, 56))
