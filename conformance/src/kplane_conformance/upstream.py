"""What the numbering of the suite follows: the upstream storage battery, function by function."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

UPSTREAM_VERSION: Final = "Kubernetes apiserver v1.37 development line, commit 24a394e516bf"

_SINGLE: Final = """
RunTestCreateWithTTL RunTestCreateWithKeyExist RunTestDeleteWithSuggestion RunTestDeleteWithSuggestionAndConflict
RunTestDeleteWithConflict RunTestDeleteWithSuggestionOfDeletedObject RunTestValidateDeletionWithSuggestion
RunTestValidateDeletionWithOnlySuggestionValid RunTestPreconditionalDeleteWithSuggestion
RunTestPreconditionalDeleteWithOnlySuggestionPass RunTestDeleteExpectedTransformOrDecodeError
RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError
RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError RunTestGuaranteedUpdateWithTTL
RunTestGuaranteedUpdateChecksStoredData RunTestGuaranteedUpdateWithConflict
RunTestGuaranteedUpdateWithSuggestionAndConflict RunTestTransformationFailure
RunTestGetListWithoutErrorAggregation RunTestListContinuation RunTestListPaginationRareObject
RunTestListContinuationWithFilter RunTestListInconsistentContinuation RunTestListPaging
RunTestListResourceVersionMatch RunTestStats RunTestCompactRevision RunTestKeySchema
RunTestDeleteTriggerWatch RunTestWatchFromNonZero RunTestWatchFromZero RunTestWatchDeleteEventObjectHaveLatestRV
RunTestWatchContextCancel RunTestWatcherTimeout RunTestDelayedWatchDelivery RunTestWatchInitializationSignal
RunTestWatchError RunWatchErrorIsBlockingFurtherEvents RunTestWatchWithUnsafeDelete RunOptionalTestProgressNotify
RunTestOptionalWatchBookmarksWithCorrectResourceVersion RunSendInitialEventsBackwardCompatibility
RunWatchSemanticInitialEventsExtended RunWatchListMatchSingle
"""

_TABLES: Final = {
    "RunTestCreate": 2,
    "RunTestGet": 8,
    "RunTestUnconditionalDelete": 2,
    "RunTestConditionalDelete": 2,
    "RunTestList": 86,
    "RunTestConsistentList": 4,
    "RunTestGetListNonRecursive": 12,
    "RunTestGetListRecursivePrefix": 24,
    "RunTestGetListWithErrorAggregation": 5,
    "RunTestGuaranteedUpdate": 8,
    "RunTestNamespaceScopedList": 17,
    "RunTestWatch": 10,
    "RunTestClusterScopedWatch": 6,
    "RunTestNamespaceScopedWatch": 17,
    "RunTestWatchDispatchBookmarkEvents": 2,
    "RunWatchSemantics": 18,
}

UPSTREAM: Final[Mapping[str, int]] = MappingProxyType(_TABLES | dict.fromkeys(_SINGLE.split(), 1))
"""Leaf cases per upstream function."""

LEAF_CASES: Final = sum(UPSTREAM.values())
