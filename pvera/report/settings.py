"""Settings: pairs of a profile and a backbone; each has its own tables and figures.

analysis/report.yaml names the profiles of the committed report. A user's own profile is a report of
one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pvera.report.scores import Result, record_of
from pvera.report.text import title
from pvera.study import results
from pvera.study.checked import load_yaml
from pvera.study.profiles import Profile


@dataclass(frozen=True)
class Setting:
    """One profile on one of its backbones: the runs that a table or a figure shows."""

    #: Name of the profile.
    profile: str
    #: Key of the backbone, such as "dinov2_b".
    backbone: str
    #: The words for it in captions and figures.
    title: str
    #: The end of file names; empty in a report of one setting.
    suffix: str

    def file_name(self, name: str) -> str:
        """Return the name of a file that shows this setting."""
        return f"{name}_{self.suffix}" if self.suffix else name


@dataclass(frozen=True)
class ResultFiles:
    """The result files of a report's profiles."""

    #: Folder of the results.
    root: Path
    #: The profiles, in the report's order.
    profiles: tuple[Profile, ...]

    def read(
        self,
        experiment: str,
        load: Callable[..., Sequence[Result]] = results.load_runs,
        text: bool = False,
    ) -> dict[Setting, list]:
        """Read the results of an experiment in every setting that has some.

        Args:
            experiment: Name of an experiment or an analysis, or its folder.
            load: From root, profile and folders to results: `load_runs` for trainings, for analyses
                `analysis_results.load_analyses` or a function that calls it.
            text: Read the profiles on texts; by default those on images, and no others.

        Returns:
            Those that `load` returns, by setting.
        """
        by_setting: dict[Setting, list] = {}
        for profile in self.profiles:
            if profile.is_text == text:
                for result in load(self.root, profile.name, *folders_of(profile, experiment)):
                    setting = self.setting_of(profile, record_of(result)["backbone"])
                    by_setting.setdefault(setting, []).append(result)
        return by_setting

    def setting_of(self, profile: Profile, backbone: str) -> Setting:
        """Return the setting of a profile and one of its backbones."""
        words, suffixes = [profile.title or profile.name], []
        if len(self.profiles) > 1:
            suffixes.append(profile.name)
        if len(profile.backbones) > 1:
            words.append(title(backbone))
            suffixes.append(backbone)
        return Setting(profile.name, backbone, ", ".join(words), "_".join(suffixes))


def folders_of(profile: Profile, experiment: str) -> list[str]:
    """Return the folders of an experiment's results; an analysis has its own name."""
    listed = profile.experiments.get(experiment)
    return list(listed.folders(experiment)) if listed else [experiment]


def read_profiles(root: Path, names: Sequence[str]) -> tuple[Profile, ...]:
    """Read profiles of the repository at `root`."""
    return tuple(Profile.read(root / "experiments" / "profiles" / f"{name}.yaml") for name in names)


def read_report(root: Path) -> dict[str, list[str]]:
    """Read analysis/report.yaml of the repository at `root`: names of profiles by key."""
    return load_yaml(root / "analysis" / "report.yaml")
