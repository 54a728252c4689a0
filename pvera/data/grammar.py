"""Three text tasks from a small English grammar, in the layouts of GLUE's three (see `glue`).

Each sentence tells an event: who did what to whom, where and when.

- Acceptability (as CoLA): is it a sentence, or is one rule broken?
- Paraphrase (as MRPC): do two sentences tell one event in two forms, or two events?
- Entailment (as RTE): does the second sentence follow from the first?

Classes are equally frequent. Each text occurs once, in one split only. Nothing is downloaded, and NumPy draws the
texts, so the files are the same everywhere.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pvera.data.glue import TASKS, Texts, encode


def _list(text: str) -> list[str]:
    return text.split(", ")


def _pairs(text: str) -> dict[str, str]:
    """Read "present past, present past"."""
    return dict(pair.split() for pair in _list(text))


PEOPLE = _list(
    "teacher, doctor, farmer, student, lawyer, nurse, painter, singer, soldier, baker, pilot, guard, writer, "
    "sailor, waiter, judge"
)
KINDS = {
    "animal": ("dog", "horse", "goat", "rabbit"),
    "instrument": ("violin", "guitar", "flute", "drum"),
    "vehicle": ("car", "truck", "bicycle", "wagon"),
    "tool": ("hammer", "shovel", "ladder", "saw"),
}
THINGS = [thing for things in KINDS.values() for thing in things]
ADJECTIVES = _list("young, tall, tired, angry, quiet, clever, famous")  # of people
LOOKS = _list("old, small, large, brown, white, beautiful")  # of things
PLACES = _list(
    "in the garden, at the station, near the river, in the kitchen, behind the church, on the bridge, at the market"
)
TIMES = _list("yesterday, last week, on Monday, this morning, in the evening, two days ago, last year")
#: Present and past of verbs that take a person as object, that take a thing, and that take no object.
PERSON_VERBS = _pairs(
    "thank thanked, blame blamed, greet greeted, praise praised, invite invited, warn warned, admire admired, "
    "assist assisted"
)
THING_VERBS = _pairs(
    "repair repaired, buy bought, carry carried, find found, damage damaged, sell sold, paint painted, fetch fetched"
)
PLAIN_VERBS = _pairs("sleep slept, laugh laughed, arrive arrived, cough coughed, vanish vanished, smile smiled")
SYNONYMS = _pairs(
    "repaired fixed, bought purchased, assisted helped, praised commended, greeted welcomed, fetched brought, "
    "carried transported, admired respected"
)


@dataclass(frozen=True)
class Event:
    """One event: noun phrases without article, the verb in the past, and place and time ("" for untold)."""

    agent: str
    verb: str
    patient: str
    place: str = ""
    time: str = ""


#: Forms of an event; `first` is the time before the sentence.
FORMS = (
    "the {agent} {verb} the {patient} {place} {time}",
    "the {patient} was {verb} by the {agent} {place} {time}",
    "it was the {agent} who {verb} the {patient} {place} {time}",
    "{first} the {agent} {verb} the {patient} {place}",
)


def _tell(event: Event, form: str) -> str:
    first = f"{event.time}," if event.time else ""
    return _sentence(*form.format(first=first, **vars(event)).split())


def _sentence(*words: str) -> str:
    text = " ".join(word for word in words if word)
    return f"{text[0].upper()}{text[1:]}."


def _one(rng: np.random.Generator, choices, *but: str) -> str:
    """Draw one of `choices`, but none of `but`."""
    choices = [choice for choice in choices if choice not in but]
    return choices[rng.integers(len(choices))]


def _phrase(rng: np.random.Generator, noun: str) -> str:
    """Return the noun, half the time with an adjective."""
    return f"{_one(rng, ADJECTIVES if noun in PEOPLE else LOOKS)} {noun}" if rng.integers(2) else noun


def _event(rng: np.random.Generator) -> Event:
    agent = _one(rng, PEOPLE)
    if rng.integers(2):
        verb, patient = _one(rng, PERSON_VERBS.values()), _one(rng, PEOPLE, agent)
    else:
        verb, patient = _one(rng, THING_VERBS.values()), _one(rng, THINGS)
    return Event(_phrase(rng, agent), verb, _phrase(rng, patient), _one(rng, PLACES), _one(rng, TIMES))


# The tasks: one text of a class


def acceptability(rng: np.random.Generator, label: int) -> tuple[str, ...]:
    """Draw a sentence in the present (1), or one with a single rule broken (0); both use the same constructions."""
    good, plural = bool(label), bool(rng.integers(2))
    rule = _one(rng, ("agreement", "article", "order", "object", "reflexive"))
    noun = _one(rng, PEOPLE) + "s" * plural
    article = _one(rng, ("these", "those") if plural else ("this", "that"))
    adjective = _one(rng, ADJECTIVES)
    verbs = PLAIN_VERBS if rule == "object" and rng.integers(2) else PERSON_VERBS
    verb = _one(rng, verbs)
    agrees = plural == (good or rule != "agreement")  # a plural verb has no ending
    told = [article, adjective, noun]
    if rule == "article" and not good:
        told[0] = _one(rng, ("this", "that") if plural else ("these", "those"))
    if rule == "order" and not good:
        told[1:] = [noun, adjective]
    if rng.integers(2):  # words between subject and verb do not change its ending
        told.append(f"near the {_one(rng, PEOPLE, noun)}{'s' * int(rng.integers(2))}")
    ending = "es" if verb.endswith(("sh", "s")) else "s"
    told.append(verb if agrees else verb + ending)
    needs_object = verbs is PERSON_VERBS
    if rule == "reflexive":
        told.append("themselves" if plural == good else _one(rng, ("himself", "herself")))
    elif needs_object == (good or rule != "object"):
        told.append(f"the {_one(rng, PEOPLE)}")
    told.append(_one(rng, PLACES))
    return (_sentence(*told),)


def paraphrase(rng: np.random.Generator, label: int) -> tuple[str, ...]:
    """Draw two forms of one event (1), or of two events that differ in one point (0). Synonyms occur in both."""
    first = _event(rng)
    second = first if label else _other(rng, first)
    if second.verb in SYNONYMS and rng.integers(2):
        second = replace(second, verb=SYNONYMS[second.verb])
    one = _one(rng, FORMS)
    return _tell(first, one), _tell(second, _one(rng, FORMS, one))


def _other(rng: np.random.Generator, event: Event) -> Event:
    """Return another event in nearly the same words."""
    persons = event.patient.split()[-1] in PEOPLE
    change = _one(rng, ("roles", "verb", "patient", "place", "time") if persons else ("verb", "patient", "time"))
    if change == "roles":
        return replace(event, agent=event.patient, patient=event.agent)
    if change == "verb":
        return replace(event, verb=_one(rng, (PERSON_VERBS if persons else THING_VERBS).values(), event.verb))
    if change == "patient":
        used = event.patient.split()[-1], event.agent.split()[-1]
        noun = _one(rng, PEOPLE if persons else THINGS, *used)
        return replace(event, patient=" ".join([*event.patient.split()[:-1], noun]))
    if change == "place":
        return replace(event, place=_one(rng, PLACES, event.place))
    return replace(event, time=_one(rng, TIMES, event.time))


def entailment(rng: np.random.Generator, label: int) -> tuple[str, ...]:
    """Draw a premise and a hypothesis.

    0: the premise entails the hypothesis, which omits something or names the kind of a thing. 1: the hypothesis tells
    another event, or more, or the opposite of the premise.

    Two rules need no comparison: words of doubt give the answer away, and so in part does a hypothesis that tells
    both place and time (68 % of the test set; both rules together 81 %).
    """
    event = _event(rng)
    premise, hypothesis, words = event, _shorter(rng, event), ""
    kind = next((kind for kind, things in KINDS.items() if event.patient.split()[-1] in things), "")
    how = _one(rng, ("other", "more", "denied", "kind" if kind else "roles"))
    if how == "denied":
        words = _one(rng, ("we doubt that", "it is false that") if label else ("we know that", "it is true that"))
    elif how == "kind":  # a thing implies its kind, but not the other way round
        specific, general = (replace(event, patient=word) for word in (event.patient.split()[-1], kind))
        premise, hypothesis = (general, specific) if label else (specific, general)
        hypothesis = _shorter(rng, hypothesis)
    elif how == "more" and label:
        premise, hypothesis = replace(event, **{_one(rng, ("place", "time")): ""}), event
    elif how == "other" and label:
        hypothesis = _other(rng, event)
    elif how == "roles" and label:
        hypothesis = replace(hypothesis, agent=event.patient, patient=event.agent)
    first, second = (_tell(x, _one(rng, FORMS[:2])) for x in (premise, hypothesis))
    return _sentence(words, f"{first[0].lower()}{first[1:-1]}"), second


def _shorter(rng: np.random.Generator, event: Event) -> Event:
    """Return the event; place and time are each omitted half the time."""
    return replace(event, **{part: "" for part in ("place", "time") if rng.integers(2)})


RECIPES: dict[str, Callable[[np.random.Generator, int], tuple[str, ...]]] = {
    "acceptability": acceptability,
    "paraphrase": paraphrase,
    "entailment": entailment,
}

#: SHA-256 of the files as published.
DIGESTS = {
    "acceptability": "440ac49e3135b47614d93e3ecf486e9465931ba0165da2295170d96906bcf1cf",
    "paraphrase": "92af4848f9c3e49f12cf963f72effa31f15d9a39958914ea3bdcdf9773918e8a",
    "entailment": "3b13766ec262ff09be59447e56ba8382b6843a925ba466d9077c9fa566149841",
}


def make(name: str) -> dict[str, Texts]:
    """Make the "train" and "dev" texts of a task, half of each class."""
    task, rng = TASKS[name], np.random.default_rng([*name.encode()])
    made: dict[tuple[str, ...], int] = {}
    for i in range(task.train + task.dev):
        while (text := RECIPES[name](rng, i % 2)) in made:
            pass
        made[text] = i % 2
    texts = Texts(list(made), np.array(list(made.values()), np.int64))
    parts = {"train": range(task.train), "dev": range(task.train, len(texts))}
    return {split: texts.take(rng.permutation(part)) for split, part in parts.items()}


def files(name: str) -> dict[str, bytes]:
    """Return the texts of `make` as files, by their path below the data's folder."""
    task = TASKS[name]
    return {f"{task.folder}/{split}.tsv": encode(texts, task.layout) for split, texts in make(name).items()}


def digest(contents: dict[str, bytes]) -> str:
    """Return the SHA-256 of the contents of `files`, in turn."""
    return hashlib.sha256(b"".join(contents.values())).hexdigest()
