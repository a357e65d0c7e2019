"""The datasets of a party file."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.data.ids import IdRule
from common.data.preparation import Preparation
from common.data.source import CsvFile, LibsvmFile, ParquetFiles, SqlQuery
from common.errors import ConfigError
from common.runtime.config.data import DatasetConfig
from common.runtime.config.party import load_party

SECRET = "s3cr3t"


def dataset(tmp_path: Path, text: str) -> DatasetConfig:
    path = tmp_path / "party.yaml"
    path.write_text(
        "party: party_a\nrole: passive\nlisten: 127.0.0.1:0\ninsecure: true\npeers: {}\nstate: state\n"
        f"datasets:\n  ours: {text}\n"
    )
    return load_party(path).datasets["ours"]


def test_a_dataset_needs_a_source_and_nothing_else(tmp_path: Path) -> None:
    ours = dataset(tmp_path, "{source: {csv: a.csv}}")
    assert ours.source.declared() == CsvFile(tmp_path / "a.csv")
    assert ours.id_rule() == IdRule()
    assert ours.preparation() == Preparation(types={"default": "numeric"}, missing={"default": "error"})


def test_everything_can_be_declared(tmp_path: Path) -> None:
    ours = dataset(
        tmp_path,
        """
    source: {csv: a.csv.gz, delimiter: tab, encoding: latin1, decimal: ","}
    id: {column: sid, case: upper, pad_zeros: 6, null_words: ["NULL", "0"], missing: drop, duplicates: last}
    features: [age, city]
    types: {city: categorical, default: numeric}
    missing: {age: median, default: error, city: category}
    missing_values: ["", NA, "?"]
    missing_labels: drop
    scale: minmax
    categories: {min_frequency: 20, max_categories: 50}
""",
    )
    assert ours.source.declared() == CsvFile(tmp_path / "a.csv.gz", "tab", "iso8859-1")
    assert ours.id_rule() == IdRule("sid", True, "upper", "NFC", 6, ("NULL", "0"), "drop", "last")
    assert ours.preparation() == Preparation(
        {"city": "categorical", "default": "numeric"},
        {"age": "median", "default": "error", "city": "category"},
        ("", "NA", "?"),
        ",",
        "minmax",
        20,
        50,
    )
    assert ours.missing_labels == "drop"


def test_one_word_stands_for_every_column(tmp_path: Path) -> None:
    ours = dataset(tmp_path, "{source: {parquet: folder}, types: categorical, missing: most_frequent}")
    assert ours.source.declared() == ParquetFiles(tmp_path / "folder")
    assert ours.preparation().type_of("anything") == "categorical"
    assert ours.preparation().missing_of("anything") == "most_frequent"


def test_libsvm_rows_have_the_ids_of_a_file_beside_them_or_declared_row_numbers(tmp_path: Path) -> None:
    beside = dataset(tmp_path, "{source: {libsvm: a.libsvm.gz, ids: ids.csv, label: y, first_number: 0}}")
    assert beside.source.declared() == LibsvmFile(tmp_path / "a.libsvm.gz", tmp_path / "ids.csv", "y", 0)
    numbered = dataset(tmp_path, "{source: {libsvm: a, ids: row_numbers}, scale: max_abs}")
    assert numbered.source.declared() == LibsvmFile(tmp_path / "a", None)
    assert numbered.preparation().scale == "max_abs"


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("sqlite:///our.db", "sqlite:///{folder}/our.db"),
        ("sqlite:our.db", "sqlite:///{folder}/our.db"),
        ("sqlite:////data/our.db", "sqlite:////data/our.db"),
        ("sqlite:/data/our.db", "sqlite:////data/our.db"),
        ("postgresql://vfl:${PASSWORD}@db/ours", f"postgresql://vfl:{SECRET}@db/ours"),
    ],
)
def test_a_database_is_named_by_url_and_its_password_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, read: str
) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    ours = dataset(tmp_path, f'{{source: {{sql: {{url: "{url}", query: TABLE t}}}}}}')
    assert ours.source.declared() == SqlQuery(read.format(folder=tmp_path), "TABLE t")
    assert SECRET not in repr(ours) + repr(ours.source.declared())


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("{source: {}}", "needs one of csv, parquet, sql and libsvm, not 0 of them"),
        ("{source: {csv: a.csv, parquet: b.parquet}}", "not 2 of them"),
        ("{source: {parquet: a.parquet, delimiter: ;}}", "source.delimiter: is for csv only"),
        ("{source: {csv: a.csv, delimiter: ;;}}", "should be auto, tab, or one character"),
        ("{source: {csv: a.csv, encoding: utf-7000}}", "source.encoding: should be auto, or an encoding"),
        ("{source: {libsvm: a.libsvm}}", "source.ids: is missing: LIBSVM text has no ids"),
        ("{source: {csv: a.csv, ids: row_numbers}}", "source.ids: is for libsvm only"),
        ("{source: {csv: a.csv, label: y}}", "source.label: is for libsvm only"),
        ("{source: {libsvm: a, ids: i, first_number: 2}}", "source.first_number: should be 0 or 1"),
        ("{source: {libsvm: a, ids: i}, missing: mean}", "ours.missing: is not for libsvm"),
        ("{source: {libsvm: a, ids: i}, types: categorical}", "ours.types: is not for libsvm"),
        ('{source: {sql: {url: "oracle://x", query: q}}}', "should begin with sqlite: or postgresql:"),
        ("{source: {csv: a.csv}, types: number}", "ours.types: should be 'numeric' or 'categorical'"),
        ("{source: {csv: a.csv}, types: {x: text}}", "ours.types: should be 'numeric' or 'categorical'"),
        ("{source: {csv: a.csv}, missing: guess}", "ours.missing: should be 'error', 'drop'"),
        ("{source: {csv: a.csv}, id: {pad_zeros: 0}}", "id.pad_zeros: should be greater than or equal to 1"),
        ("{source: {csv: a.csv}, id: {duplicate: first}}", 'did you mean "duplicates"?'),
        ("{source: {csv: a.csv}, categories: {max_categories: 1}}", "greater than or equal to 2"),
    ],
)
def test_a_wrong_declaration_is_named_by_its_path(tmp_path: Path, text: str, claim: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dataset(tmp_path, text)
    assert claim in caught.value.what
