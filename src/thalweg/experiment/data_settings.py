"""The data of an experiment, and what all parts of it are made of; all validated."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)


def as_tuple(value: Any) -> Any:
    """A list as a tuple, and anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def one_or_many(value: Any) -> Any:
    """Several values as a tuple, whether one or a list of them was given."""
    return as_tuple(value) if isinstance(value, list | tuple) else (value,)


def gaussian_by_default(name: str) -> BeforeValidator:
    """A table that does not say which kind it is, is gaussian."""

    def complete(value: Any) -> Any:
        return {name: "gaussian", **value} if isinstance(value, dict) else value

    return BeforeValidator(complete)


Many = BeforeValidator(as_tuple)
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Settings(BaseModel):
    """A part of an experiment: frozen, without unknown fields, infinities or silent conversions."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __init__(self, /, **values: Any):
        """Take the fields by name; what they must be is refused in one sentence, as in a file."""
        try:
            self.__pydantic_validator__.validate_python(values, self_instance=self)
        except ValidationError as error:
            from thalweg.experiment.files import refusal  # which reads these very classes

            raise refusal(type(self).__name__, error, values, type(self)) from None

    # Without it pydantic would make the tables of a table by the above, one error in another.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]


class GaussianData(Settings):
    """Gaussian inputs, a Gaussian teacher and noise, scaled so that the solution has norm one."""

    source: Literal["gaussian"] = "gaussian"
    """where the data come from"""
    samples: Count = 50
    """how many samples"""
    features: Count = 5
    """how many inputs each has"""
    noise: NotNegative = 1.0
    """deviation of the noise on the targets"""
    white: bool = False
    """whiten the inputs"""
    seed: Seed = 0
    """random seed of the data"""


class ConditionedData(Settings):
    """Inputs whose second moment has a chosen condition number."""

    source: Literal["conditioned"] = "conditioned"
    """where the data come from"""
    samples: Count = 50
    """how many samples"""
    features: Count = 5
    """how many inputs each has"""
    outputs: Count = 1
    """how many targets each has"""
    condition: Annotated[float, Field(ge=1)] = 100.0
    """largest over smallest eigenvalue of the second moment"""
    noise: NotNegative = 0.0
    """deviation of the noise on the targets"""
    seed: Seed = 0
    """random seed of the data"""


class TargetData(Settings):
    """No samples: the network's product is to become a matrix, 1/2 |W - target|^2."""

    source: Literal["target"] = "target"
    """where the data come from"""
    matrix: Annotated[tuple[Annotated[tuple[float, ...], Many], ...], Many] = ((1.0, 0.0, 0.0),)
    """the rows of the target, one per output"""


class TableData(Settings):
    """A small set of real measurements that ships with scikit-learn."""

    source: Literal["diabetes", "linnerud"]
    """which of them"""
    standardise: bool = True
    """bring every column to mean zero and deviation one"""
    white: bool = False
    """whiten the inputs"""


class CsvData(Settings):
    """A table of your own, with a line of column names."""

    source: Literal["csv"] = "csv"
    """where the data come from"""
    path: str
    """the file; from the folder of the experiment file, if it is not absolute"""
    target: Annotated[tuple[str, ...], BeforeValidator(one_or_many)]
    """the column to be predicted, or a list of them; all others are inputs"""
    standardise: bool = True
    """bring every column to mean zero and deviation one"""
    white: bool = False
    """whiten the inputs"""


class ImageData(Settings):
    """Handwritten digits: "digits" ships with scikit-learn, "mnist" is read from its files."""

    source: Literal["digits", "mnist"]
    """which of them"""
    samples: Count | None = None
    """how many images, spread evenly over the set; all of them if not given"""
    only: Annotated[tuple[Annotated[int, Field(ge=0, le=9)], ...], Many] | None = None
    """only these digits, which become the classes 0, 1, ...; all ten if not given"""
    path: str | None = None
    """the folder of MNIST's files; THALWEG_DATA or the user's cache if not given"""

    @model_validator(mode="after")
    def _several_classes(self) -> "ImageData":
        if self.only is not None and len(set(self.only)) < max(2, len(self.only)):
            raise ValueError(f"must name two or more different digits in `only`, got {self.only}")
        if self.path is not None and self.source != "mnist":
            raise ValueError("must have no `path`: digits ship with scikit-learn")
        return self

    @property
    def classes(self) -> int:
        """How many digits there are to tell apart."""
        return 10 if self.only is None else len(self.only)


Data = Annotated[
    GaussianData | ConditionedData | TargetData | TableData | CsvData | ImageData,
    Field(discriminator="source"),
    gaussian_by_default("source"),
]
