"""One small language says which devices are meant; it never runs code, and its errors name the place and the remedy."""

from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from edgefl.base import where as language
from edgefl.base.errors import ConfigError
from edgefl.base.where import Conjunction, Disjunction, LabelComparison, Negation, Node, Value, parse

NORTH = {"site": "north", "camera": "v2", "floor": "3", "outdoor": "true", "memory_mb": 905, "samples": 120}


@pytest.mark.parametrize(
    "text",
    [
        "site == 'north'",
        'site == "north"',
        "site=='north'",
        "site != 'south'",
        "memory_mb >= 900",
        "memory_mb >= 905",
        "memory_mb <= 905",
        "memory_mb > 904.5",
        "memory_mb < 906",
        "site in ['south', 'north']",
        "memory_mb in [512, 905]",
        "site not in ['south', 'east']",
        "floor > 2",
        "floor == 3",
        "floor == '3'",
        "outdoor == true",
        "outdoor != false",
        "memory_mb == '905'",
        "camera > 'v1'",
        "not site == 'south'",
        "not not site == 'north'",
        "site == 'south' or camera == 'v2'",
        "site == 'north' and camera == 'v2'",
        "(site == 'south' or site == 'north') and floor < 4",
        "site == 'north' or site == 'south' and camera == 'v9'",
        "not site == 'south' and camera == 'v2'",
        "samples > -1",
    ],
)
def test_these_mean_the_device(text):
    assert parse(text).matches(NORTH)
    assert parse(text).objection(NORTH) == ""


@pytest.mark.parametrize(
    "text",
    [
        "site == 'North'",
        "site != 'north'",
        "memory_mb > 905",
        "memory_mb < 905",
        "memory_mb >= 905.5",
        "memory_mb <= 904",
        "site in ['south']",
        "site not in ['north', 'south']",
        "floor >= 10",
        "outdoor == false",
        "camera > 'v2'",
        "not site == 'north'",
        "site == 'south' or camera == 'v3'",
        "site == 'north' and camera == 'v3'",
        "(site == 'north' or site == 'south') and camera == 'v9'",
        "not (site == 'north' or camera == 'v3')",
    ],
)
def test_these_do_not(text):
    assert not parse(text).matches(NORTH)


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_a_comparison_with_a_name_that_the_device_lacks_is_false(sign):
    assert not parse(f"owner {sign} 'a'").matches(NORTH)
    assert not parse("owner in ['a']").matches(NORTH)
    assert not parse("owner not in ['a']").matches(NORTH)
    assert parse(f"not owner {sign} 'a'").matches(NORTH)


@pytest.mark.parametrize(
    "text", ["site == 3", "site < 3", "site >= 3", "memory_mb == true", "memory_mb < 'many'", "site == true"]
)
def test_values_of_two_kinds_are_not_equal_and_have_no_order(text):
    assert not parse(text).matches(NORTH)
    assert parse("site != 3").matches(NORTH)


def test_numbers_within_texts_are_ordered_by_their_value():
    assert parse("version >= '0.9'").matches({"version": "0.10.1"})
    assert not parse("version < '0.9'").matches({"version": "0.10.1"})
    assert parse("device < 'pi-10'").matches({"device": "pi-9"})


def test_a_label_of_digits_is_no_truth_and_a_truth_is_no_number():
    assert not parse("flag == true").matches({"flag": "1"})
    assert not parse("flag == 1").matches({"flag": "true"})
    assert not parse("flag == 1").matches({"flag": True})
    assert parse("flag == 'true'").matches({"flag": True})
    assert not parse("flag >= 0").matches({"flag": "true"})


def test_and_binds_closer_than_or_and_not_closer_than_both():
    assert parse("a == 1 or b == 1 and c == 1").tree == Disjunction(
        (
            LabelComparison("a", "==", (1.0,)),
            Conjunction((LabelComparison("b", "==", (1.0,)), LabelComparison("c", "==", (1.0,)))),
        )
    )
    assert parse("not a == 1 and b == 1").tree == Conjunction(
        (Negation(LabelComparison("a", "==", (1.0,))), LabelComparison("b", "==", (1.0,)))
    )


def test_it_names_what_it_looks_at():
    assert parse("a == 1 or not (b == 'a' and c in [1, 2]) or a < 2").names() == {"a", "b", "c"}


def test_it_says_why_a_device_is_not_meant():
    why = parse("site == 'south' and memory_mb >= 900 and owner == 'ada' and up == true").objection(
        {**NORTH, "up": False}
    )
    assert why == "site is 'north', memory_mb is 905, it has no 'owner', up is false"


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("", 1, "write a comparison"),
        ("  ", 3, "write a comparison"),
        ("site = 'north'", 6, "write == to compare"),
        ("site", 5, "write == != < <= > >= or in, as site == 'north'"),
        ("site == north", 9, "put a text in quotes: 'north'"),
        ("site == 'north", 9, "end it with '"),
        ("site == 'north' memory_mb > 1", 17, "join expressions with `and` or `or`"),
        ("site == 'north' and", 20, "begin a comparison with a name"),
        ("900 <= memory_mb", 1, "begin a comparison with a name"),
        ("in == 3", 1, "begin a comparison with a name"),
        ("true", 1, "begin a comparison with a name"),
        ("site not == 'north'", 10, "write == != < <= > >= or in"),
        ("site in 'north'", 9, "write it in brackets"),
        ("site in ['north'", 17, "close the bracket"),
        ("site in []", 10, "write a text in quotes, a number, true or false"),
        ("(site == 'north'", 17, "close the parenthesis"),
        ("site == 'north')", 16, "join expressions"),
        ("outdoor < true", 11, "write == or !="),
        ("site == ", 9, "write a text in quotes"),
        ("1 < floor < 3", 1, "begin a comparison with a name"),
        ("floor > 1 < 3", 11, "join expressions"),
        ("ort == 'Köln' and größe == 1", 21, "it takes names, texts in quotes"),
        ("a + b == 2", 3, "it takes names"),
        ("site == 'a\n'; x == 1", 13, "it takes names"),
        ("__import__('os')", 1, "it takes names"),
        ("site.upper() == 'A'", 11, "write == != < <= > >= or in"),
        ("lambda == 1 if x else y", 13, "join expressions"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place_and_a_remedy(text, place, remedy):
    with pytest.raises(ConfigError) as error:
        parse(text, "rounds.where")
    assert str(error.value).startswith("rounds.where: ")
    assert f"at character {place} of " in str(error.value)
    assert remedy in str(error.value).rpartition("; ")[2]


def test_what_is_too_long_or_too_deep_is_refused_before_it_costs_anything():
    deep = language.DEEPEST
    assert parse("(" * deep + "a == 1" + ")" * deep).matches({"a": 1})
    assert parse("not " * deep + "a == 1").matches({"a": 1}) is (deep % 2 == 0)
    for text in ("(" * (deep + 1) + "a == 1" + ")" * (deep + 1), "not " * (deep + 1) + "a == 1"):
        with pytest.raises(ConfigError, match="within one another"):
            parse(text)
    longest = "a == '" + "b" * (language.LONGEST - 7) + "'"
    assert parse(longest).names() == {"a"}
    with pytest.raises(ConfigError, match="an expression has at most 1000"):
        parse(longest + " ")


def test_a_name_that_no_device_has_is_an_error_with_the_nearest_one():
    expression = parse("site == 'north' and camra == 'v2'")
    expression.check_names({"site", "camra"})
    with pytest.raises(ConfigError) as error:
        expression.check_names({"site", "camera", "memory_mb"}, "rounds.where")
    assert str(error.value) == (
        "rounds.where: no device has a label 'camra'; did you mean 'camera'?;"
        " `edgefl fleet label DEVICE camra=VALUE` gives it to one"
    )


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────

names = st.sampled_from(["site", "camera", "memory_mb", "a", "b-1", "c.d", "not_x", "iNside"])
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8).filter(
    lambda text: not ("'" in text and '"' in text)
)
numbers = st.one_of(st.integers(-1000, 1000), st.sampled_from([0.5, -2.25, 905.125])).map(float)
literals = st.one_of(texts, numbers, st.booleans())
comparisons = st.one_of(
    st.builds(LabelComparison, names, st.sampled_from(["==", "!="]), st.tuples(literals)),
    st.builds(LabelComparison, names, st.sampled_from(["<", "<=", ">", ">="]), st.tuples(st.one_of(texts, numbers))),
    st.builds(
        LabelComparison, names, st.sampled_from(["in", "not in"]), st.lists(literals, min_size=1, max_size=3).map(tuple)
    ),
)
trees = st.recursive(
    comparisons,
    lambda part: st.one_of(
        st.builds(Negation, part),
        st.builds(Conjunction, st.lists(part, min_size=2, max_size=3).map(tuple)),
        st.builds(Disjunction, st.lists(part, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
devices = st.dictionaries(names, st.one_of(texts, numbers, st.booleans()))


def written(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if "'" in value else f"'{value}'"
    return f"{value:f}"


def spelled(node: Node) -> str:
    """The expression with all its parentheses."""
    match node:
        case LabelComparison(name, sign, values):
            list_ = ", ".join(written(value) for value in values)
            return f"{name} {sign} [{list_}]" if sign.endswith("in") else f"{name} {sign} {list_}"
        case Negation(part):
            return f"not ({spelled(part)})"
        case Conjunction(parts):
            return " and ".join(f"({spelled(part)})" for part in parts)
        case Disjunction(parts):
            return " or ".join(f"({spelled(part)})" for part in parts)


@given(trees)
def test_what_is_written_is_what_is_read(tree):
    text = spelled(tree)
    assume(len(text) <= language.LONGEST)
    assert parse(text).tree == tree


def of_python(node: Node, device: dict[str, Value]) -> str:
    """The expression with the truth of each comparison in its place, as Python writes it."""
    match node:
        case LabelComparison():
            return str(node.holds(device))
        case Negation(part):
            return f"(not {of_python(part, device)})"
        case Conjunction(parts) | Disjunction(parts):
            word = " and " if isinstance(node, Conjunction) else " or "
            return f"({word.join(of_python(part, device) for part in parts)})"


@given(trees, devices)
def test_it_means_what_python_means_by_the_same_words(tree, device):
    text = spelled(tree)
    assume(len(text) <= language.LONGEST)
    assert parse(text).matches(device) is eval(of_python(tree, device))


@given(names, st.one_of(texts, numbers, st.booleans()), literals)
def test_of_two_opposite_comparisons_exactly_one_holds_where_the_device_has_the_name(name, value, literal):
    for sign, opposite in (("==", "!="), ("in", "not in")):
        one, other = LabelComparison(name, sign, (literal,)), LabelComparison(name, opposite, (literal,))
        assert one.holds({name: value}) is not other.holds({name: value})
        assert not one.holds({})
        assert not other.holds({})


@given(numbers, numbers)
def test_numbers_are_ordered_as_numbers_be_they_labels_or_not(value, literal):
    label = f"{value:f}"
    for sign, expected in (
        ("<", value < literal),
        ("<=", value <= literal),
        (">", value > literal),
        (">=", value >= literal),
    ):
        assert parse(f"a {sign} {literal:f}").matches({"a": value}) is expected
        assert parse(f"a {sign} {literal:f}").matches({"a": label}) is expected


@given(st.text(max_size=60))
@example("a == '" + "9" * 400 + "'")
@example("a == " + "9" * 400)
@example("\x00")
def test_no_text_does_anything_but_mean_devices_or_raise_a_config_error(text):
    with suppress(ConfigError):
        assert parse(text).matches({}) in {True, False}


@given(trees, devices)
def test_a_device_is_meant_or_there_is_a_reason(tree, device):
    text = spelled(tree)
    assume(len(text) <= language.LONGEST)
    expression = parse(text)
    assert expression.matches(device) is (expression.objection(device) == "")
