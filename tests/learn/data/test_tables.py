"""Tables as people and programs write them: every dialect gives the same numbers, and what is missing is said."""

import csv
import io
import sqlite3
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError
from edgefl.job.config import reader as toml_reader
from edgefl.job.config.agent_file import LocalData
from edgefl.learn.data import cells
from edgefl.learn.data.catalog import load, read_table
from edgefl.learn.data.csv_table import read_csv
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.table import packed, unpacked

NUMBERS = st.floats(-1e6, 1e6).map(lambda value: round(value, 6))


def written(rows: list[list[str]], *, delimiter: str, header: list[str] | None, quoting: int, ending: str) -> str:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=ending)
    writer.writerows([header, *rows] if header else rows)
    return file.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    table=st.lists(
        st.tuples(NUMBERS, NUMBERS, st.sampled_from(["sit", "walk", "jümp, high"])), min_size=3, max_size=20
    ),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    titled=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    ending=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    comma=st.booleans(),
)
def test_every_dialect_of_csv_gives_the_same_numbers_and_texts(  # noqa: PLR0917
    tmp_path_factory, table, delimiter, titled, quoting, ending, encoding, comma
):
    def said(value: float) -> str:
        return repr(value).replace(".", ",") if comma and delimiter != "," else repr(value)

    rows = [[said(a), said(b), label] for a, b, label in table]
    header = ["ax", "ay", "activity"] if titled else None
    text = written(rows, delimiter=delimiter, header=header, quoting=quoting, ending=ending)
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.encode(encoding))
    read = read_csv([path], "a", Reading(encoding="cp1252" if encoding == "cp1252" else None))
    assert read.x.tolist() == [[a, b] for a, b, _ in table]
    assert read.labels == tuple(label for *_, label in table)
    assert read.titles == (("ax", "ay") if titled else ("1", "2"))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01 10:00", (2026, 11, 1, 10)),
        ("2026-11-01T10:00:00Z", (2026, 11, 1, 10)),
        ("2026-11-01T12:00:00+02:00", (2026, 11, 1, 10)),
        ("2026-11-01T12:00:00+0200", (2026, 11, 1, 10)),
        ("2026/11/1", (2026, 11, 1)),
        ("1.11.2026 10:00:00", (2026, 11, 1, 10)),
    ],
)
def test_dates_are_seconds_since_1970(text, moment):
    assert cells.seconds(text) == datetime(*moment, tzinfo=timezone.utc).timestamp()
    assert cells.looks_like_time(text)


def test_fractions_of_seconds_and_slashes_are_read_as_they_are_meant():
    whole = cells.seconds("2026-11-01 10:00:00")
    assert cells.seconds("2026-11-01 10:00:00,25") == whole + 0.25
    assert cells.seconds("1/11/2026 10:00:00", day_first=True) == whole
    assert cells.seconds("11/1/2026 10:00:00", day_first=False) == whole
    with pytest.raises(ValueError, match=r"data.day_first"):
        cells.seconds("1/11/2026")
    with pytest.raises(ValueError, match="without its day"):
        cells.seconds("10:00:00")
    assert cells.seconds("12.5") == 12.5


LOG = "nr;when;ax;ay;who;state\n" + "".join(
    f"{i};01.11.2026 10:00:{i:02d};{i / 4};{-i};{'anna' if i < 20 else 'bert'};{'ON' if i % 2 else 'OFF'}\n".replace(
        ".25", ",25"
    )
    for i in range(40)
)


def test_a_log_as_it_is_needs_only_its_columns_named(tmp_path: Path):
    (tmp_path / "log.csv").write_text(LOG)
    source = load(
        f"csv:{tmp_path / 'log.csv'}", reading=Reading(columns=("ax", "ay"), label="State", time="when", group="who")
    )
    assert (source.train.shape, source.train.class_names) == ((2,), ("OFF", "ON"))
    assert len(source.train) + len(source.test) == 40
    assert set(source.groups.tolist()) == {0, 1}
    assert source.notes[1] == "ordered by 'when' in 2 groups, 0 gaps"


def test_a_column_of_dates_orders_the_rows_and_is_no_feature(tmp_path: Path):
    (tmp_path / "log.csv").write_text("when,ax,label\n" + "".join(f"2026-11-01 10:{59 - i},{i},0\n" for i in range(50)))
    table = read_table(f"csv:{tmp_path / 'log.csv'}", Reading())
    assert (table.titles, table.time_title) == (("ax",), "when")


def test_a_column_that_only_numbers_the_rows_is_no_feature(tmp_path: Path):
    (tmp_path / "log.csv").write_text(",ax,label\n" + "".join(f"{i},{i / 2},{i % 2}\n" for i in range(10)))
    table = read_table(f"csv:{tmp_path / 'log.csv'}", Reading())
    assert (table.titles, table.ignored) == (("ax",), ("",))


def test_remarks_above_the_titles_are_passed_over(tmp_path: Path):
    text = "# logger 7, firmware 2\n# ax, ay, label\n" + "1,2,sit\n1,2,walk\n" * 3
    (tmp_path / "log.csv").write_text(text)
    assert read_table(f"csv:{tmp_path / 'log.csv'}", Reading()).titles == ("ax", "ay")


@pytest.mark.parametrize(
    ("empty", "expected", "labels"),
    [
        ("drop", [[1], [4]], "ad"),
        ("last", [[1], [1], [1], [4]], "abcd"),
        (-7.0, [[1], [-7], [-7], [4]], "abcd"),
    ],
)
def test_empty_cells_become_what_was_declared(tmp_path: Path, empty, expected, labels):
    (tmp_path / "a.csv").write_text(
        "ax,label\n1,a\n,b\nNA,c\n4,d\n5,\n" if empty == "drop" else "ax,label\n1,a\n,b\n?,c\n4,d\n"
    )
    source = load(f"csv:{tmp_path / 'a.csv'}", reading=Reading(empty=empty))
    whole = sorted(
        (source.train.class_names[y], x.tolist())
        for part in (source.train, source.test)
        for x, y in zip(part.x, part.y, strict=True)
    )
    assert whole == sorted(zip(labels, [[float(v) for v in row] for row in expected], strict=True))


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        ("ax,label\n,a\n2,b\n", {}, "line 2, column 'ax': the cell is empty; fill it, or set data.empty to 'drop'"),
        ("ax,label\n1,a\n2,\n", {}, "line 3: the label is empty; fill it, or set data.empty = 'drop'"),
        ("ax,ay,label\n1,2,a\n", {"columns": ["az"]}, "has no column 'az' (data.columns)"),
        ("1,2,a\n", {"columns": ["9"]}, "it has no titles; give a number from 1 to 3"),
        ("ax,ay,az\n1,2,a\n", {"columns": ["ax"]}, "not clear which column has the labels; name it in data.label"),
        ("ax,label\n1,a\n", {"columns": ["ax", "label"]}, "is named twice, or is the label"),
        ("ax,note,label\n1,fine,a\n", {}, "'fine' is not a number; name the columns that are features in data.columns"),
        ("when,ax,label\n3/4/2026,1,a\n", {}, "set data.day_first = true or false"),
        ("t,ax,label\nx,1,a\n", {"time": "t"}, "line 2, column 1 't': 'x' is no time"),
        ("ax,label\n1,a\n2,b\n3,c\n", {"most_rows": 2}, "has more than 2 rows"),
        ("ax,label\n1,a\n2,b\n", {"window": 2}, "has 1 windows of 2 rows without a gap, of 2 rows"),
        ("ax,t\n1,.5\n2,1.5\n3,2.5\n", {"window": 2, "window_label": "majority"}, "is for classes"),
    ],
)
def test_what_cannot_be_meant_is_one_line_that_says_what_to_do(tmp_path: Path, text, keys, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ConfigError) as error:
        load(f"csv:{tmp_path / 'a.csv'}", reading=Reading(**keys))
    assert message in str(error.value)


def test_a_file_in_another_encoding_says_which_key_to_set(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes("ax,label\n1,müde\n2,wach\n".encode("cp1252"))
    with pytest.raises(ConfigError, match=r"byte 0xfc is not utf-8; set data.encoding = 'cp1252'"):
        load(f"csv:{tmp_path / 'a.csv'}")
    assert load(f"csv:{tmp_path / 'a.csv'}", reading=Reading(encoding="cp1252")).train.class_names == ("müde", "wach")


def test_keys_for_tables_are_refused_where_there_is_none(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    with pytest.raises(ConfigError, match=r"is no table: data.columns means nothing to it"):
        load(f"npz:{tmp_path / 'a.npz'}", reading=Reading(columns=("x",)))


def test_several_files_are_one_table_and_must_be_alike(tmp_path: Path):
    for day in (2, 1):
        (tmp_path / f"day{day}.csv").write_text(f"ax,label\n{day},a\n{day}.5,b\n")
    for name in (f"csv:{tmp_path}/day*.csv", f"csv:{tmp_path}"):
        assert read_table(name, Reading()).x[:, 0].tolist() == [1, 1.5, 2, 2.5]
    (tmp_path / "day3.csv").write_text("ay,label\n1,a\n")
    with pytest.raises(ConfigError, match=r"'day3.csv' has other columns than 'day1.csv'"):
        read_table(f"csv:{tmp_path}", Reading())


def test_several_labels_are_real_targets(tmp_path: Path):
    (tmp_path / "a.csv").write_text("ax,t,h\n" + "".join(f"{i},{i + 1},{i / 2}\n" for i in range(10)))
    train = load(f"csv:{tmp_path / 'a.csv'}", reading=Reading(label=("t", "h"))).train
    assert (train.classes, train.targets, train.target_names) == (0, 2, ("t", "h"))
    assert np.array_equal(train.y, np.stack([train.x[:, 0] + 1, train.x[:, 0] / 2], axis=1))
    one = load(f"csv:{tmp_path / 'a.csv'}", reading=Reading(columns=("ax",), label=("t",))).train
    assert (one.classes, one.y.shape) == (0, (8,))  # whole numbers, and yet no classes: a list says so


# ---- SQLite ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE samples (at REAL, ax REAL, ay INTEGER, label TEXT)")
        rows = [(i, i / 2, -i, "on" if i % 3 else "off") for i in range(30)]
        connection.executemany("INSERT INTO samples VALUES (?, ?, ?, ?)", rows)
    connection.close()
    return path


def test_a_query_of_an_sqlite_file_gives_samples(database: Path):
    reading = Reading(query="SELECT ax, ay, label FROM samples WHERE at >= 10 ORDER BY at")
    train = load(f"sqlite:{database}", reading=reading).train
    assert (len(train), train.shape, train.class_names) == (16, (2,), ("off", "on"))
    assert load(f"sqlite:{database}").train.shape == (3,)  # all of its only table


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("DELETE FROM samples", "not authorized"),
        ("ATTACH DATABASE '{other}' AS other", "not authorized"),
        ("PRAGMA journal_mode = DELETE", "not authorized"),
        ("SELECT ax FROM nowhere", "no such table"),
        ("SELECT ax, label FROM samples; DELETE FROM samples", "one statement at a time"),
        ("", "correct data.query|write SELECT"),
    ],
)
def test_a_query_can_do_nothing_but_read(database: Path, query: str, message: str):
    before, other = database.read_bytes(), database.with_name("other.db")
    with pytest.raises(ConfigError, match=message):
        load(f"sqlite:{database}", reading=Reading(query=query.format(other=other) or "  "))
    assert database.read_bytes() == before
    assert not other.exists()


def test_an_sqlite_file_with_two_tables_asks_for_a_query(database: Path):
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()
    with pytest.raises(ConfigError, match=r"has the tables notes, samples; say what to read: data.query"):
        load(f"sqlite:{database}")


def test_rubbish_is_no_sqlite_file(tmp_path: Path):
    (tmp_path / "a.db").write_bytes(b"not a database at all, " * 100)
    with pytest.raises(ConfigError, match="file is not a database"):
        load(f"sqlite:{tmp_path / 'a.db'}")


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def test_a_parquet_file_gives_samples(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (edgefl[parquet])")
    parquet = pytest.importorskip("pyarrow.parquet")
    when = [datetime(2026, 11, 1, 10, 0, i) for i in range(30)]
    columns = {
        "when": pyarrow.array(when, pyarrow.timestamp("ms")),
        "ax": pyarrow.array([i / 2 for i in range(30)], pyarrow.float32()),
        "on": pyarrow.array([i % 2 == 0 for i in range(30)]),
        "label": pyarrow.array(["sit" if i % 3 else "walk" for i in range(30)]).dictionary_encode(),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=7)
    source = load(f"parquet:{tmp_path / 'a.parquet'}")
    assert (source.train.shape, source.train.class_names) == ((2,), ("sit", "walk"))
    assert len(source.train) + len(source.test) == 30
    assert source.notes == ("30 rows, columns ax, on", "ordered by 'when', 0 gaps")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 rubbish PAR1")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        load(f"parquet:{tmp_path / 'b.parquet'}")


@pytest.mark.parametrize(
    ("module", "source", "extra"), [("pyarrow", "parquet", "parquet"), ("PIL", "images", "images")]
)
def test_a_package_that_is_not_there_is_named(tmp_path: Path, monkeypatch, module, source, extra):
    (tmp_path / "a" / "one").mkdir(parents=True)
    (tmp_path / "a" / "one" / "x.png").write_bytes(b"")
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'edgefl\[{source}\]'"):
        load(f"{source}:{tmp_path / ('a' if source == 'images' else 'a.parquet')}")


# ---- images ----------------------------------------------------------------------------------------------------------


def drawn(folder: Path, count: int = 5) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow (edgefl[images])")
    for label, grey in (("dark", 20), ("light", 220)):
        (folder / label).mkdir(parents=True)
        for i in range(count):
            image.new("RGB", (10 + i, 8), (grey, grey, grey)).save(folder / label / f"{i}.{'png' if i % 2 else 'jpg'}")


def test_a_folder_for_each_class_is_a_set_of_images(tmp_path: Path):
    drawn(tmp_path / "set")
    source = load(f"images:{tmp_path / 'set'}", reading=Reading(size=(6, 7), colour=False))
    assert (source.train.shape, source.train.class_names, len(source.train)) == ((1, 6, 7), ("dark", "light"), 8)
    assert [round(float(source.train.x[source.train.y == c].mean()) * 255) for c in (0, 1)] == [20, 220]
    assert load(f"images:{tmp_path / 'set'}", reading=Reading(size=(6, 7))).train.shape == (3, 6, 7)


def test_images_that_cannot_be_used_are_named(tmp_path: Path):
    drawn(tmp_path / "set")
    with pytest.raises(ConfigError, match=r"1.png is 8 x 11, 0.jpg is 8 x 10; set data.size"):
        load(f"images:{tmp_path / 'set'}")
    (tmp_path / "set" / "dark" / "2.jpg").write_bytes(b"\xff\xd8 rubbish")
    with pytest.raises(ConfigError, match=r"2.jpg cannot be read as an image"):
        load(f"images:{tmp_path / 'set'}", reading=Reading(size=(6, 7)))
    with pytest.raises(ConfigError, match="is not a folder"):
        load(f"images:{tmp_path / 'gone'}")


def test_a_table_goes_from_one_process_to_another_as_it_is(tmp_path: Path):
    (tmp_path / "log.csv").write_text(LOG)
    reading = Reading(columns=("ax",), label="State", time="when", group="who")
    table = read_table(f"csv:{tmp_path / 'log.csv'}", reading)
    file = io.BytesIO()
    packed(table, file)
    again = unpacked(file.getvalue())
    assert (again.labels, again.groups, again.titles) == (table.labels, table.groups, table.titles)
    assert np.array_equal(again.x, table.x)
    assert np.array_equal(again.times, table.times)
    assert again.where(3) == table.where(3)


def test_pyarrow_is_not_loaded_where_a_parquet_file_is_read(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (edgefl[parquet])")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"x": [1.0, 2.0, 3.0], "label": ["a", "b", "a"]}), tmp_path / "a.parquet")
    code = (
        "import sys; from edgefl.learn.data.catalog import load;"
        f"print(len(load('parquet:{tmp_path / 'a.parquet'}').train), 'pyarrow' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["2", "False"]


def test_the_keys_in_the_guide_are_known():
    guide = (Path(__file__).parents[3] / "docs" / "devices.md").read_text(encoding="utf-8")
    shown = guide.split("## Data as they are")[1].split("```toml")[1].split("```")[0]
    data = toml_reader.toml_value("{" + ",".join(line for line in _lines(shown) if "=" in line) + "}")
    assert {"columns", "label", "time", "group", "window", "stride", "gap", "empty"} <= set(data)
    assert LocalData(**data).window == 128


def _lines(text: str) -> list[str]:
    return [line.partition("#")[0].strip() for line in text.splitlines() if not line.startswith("[")]
