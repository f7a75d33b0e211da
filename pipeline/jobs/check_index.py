"""A check's index files, each looked through by itself by a task."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rmqctl.store.check.index.index_files import FileSurvey, IndexSurvey, survey_file
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.remote.address import reachable_file
from rmqctl.store.store_files import StoreFiles


class IndexFileItem(NamedTuple):
    """One index file to look through."""

    store: str
    path: str
    geometry: Geometry
    is_live: bool


def survey_one(item: IndexFileItem) -> FileSurvey:
    """The survey of one index file."""
    with Descriptors() as descriptors:
        file = IndexFile(reachable_file(item.path, item.store), item.geometry, descriptors)
        return survey_file(file, descriptors, is_live=item.is_live)


def survey_here(survey: IndexSurvey, files: StoreFiles) -> IndexSurvey:
    """A survey that another process made, with the paths that index files have here."""
    return replace(survey, files=[replace(one, path=files.layout.index / one.path.name) for one in survey.files])
