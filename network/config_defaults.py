"""Keys of brokers and name servers with RocketMQ's defaults, by version.

They are the output of getBrokerConfig and getNamesrvConfig of fresh servers (BrokerConfig, NettyServerConfig,
NettyClientConfig, MessageStoreConfig, NamesrvConfig), and what a broker.conf can have beside them (AuthConfig). Keys of
addresses, names and paths are left out: they are never the default's.

Where a default counts cores, it is that of a machine with two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from rmqctl.store.config.releases import Release

_SEPARATOR = ";;"

_ALL = (
    "accessMessageInMemoryMaxRatio=40;;aclEnable=false;;adminBrokerThreadPoolNums=16;;"
    "autoCreateSubscriptionGroup=true;;autoCreateTopicEnable=true;;bitMapLengthConsumeQueueExt=112;;"
    "brokerFastFailureEnable=true;;brokerPermission=6;;brokerRole=ASYNC_MASTER;;brokerTopicEnable=true;;"
    "channelNotActiveInterval=60000;;checkCRCOnRecover=true;;cleanFileForciblyEnable=true;;"
    "cleanResourceInterval=10000;;clientAsyncSemaphoreValue=65535;;clientCallbackExecutorThreads=2;;"
    "clientChannelMaxIdleTimeSeconds=120;;clientCloseSocketIfTimeout=true;;clientManageThreadPoolNums=32;;"
    "clientManagerThreadPoolQueueCapacity=1000000;;clientOnewaySemaphoreValue=65535;;"
    "clientPooledByteBufAllocatorEnable=false;;clientSocketRcvBufSize=0;;clientSocketSndBufSize=0;;"
    "clientWorkerThreads=4;;clusterTopicEnable=true;;commercialBaseCount=1;;commitCommitLogLeastPages=4;;"
    "commitCommitLogThoroughInterval=200;;commitIntervalCommitLog=200;;compressedRegister=false;;"
    "configBlackList=configBlackList;brokerConfigPath;;connectTimeoutMillis=3000;;"
    "consumerFallbehindThreshold=17179869184;;consumerManageThreadPoolNums=32;;"
    "consumerManagerThreadPoolQueueCapacity=1000000;;debugLockEnable=false;;defaultQueryMaxNum=32;;"
    "defaultTopicQueueNums=8;;deleteCommitLogFilesInterval=100;;deleteConsumeQueueFilesInterval=100;;deleteWhen=04;;"
    "destroyMapedFileIntervalForcibly=120000;;disableConsumeIfConsumerReadSlowly=false;;diskFallRecorded=true;;"
    "diskMaxUsedSpaceRatio=75;;duplicationEnable=false;;enableCalcFilterBitMap=false;;enableConsumeQueueExt=false;;"
    "enableDLegerCommitLog=false;;enableDetailStat=true;;enableLmq=false;;enableMultiDispatch=false;;"
    "enablePropertyFilter=false;;enableScheduleAsyncDeliver=false;;enableScheduleMessageStats=true;;"
    "endTransactionPoolQueueCapacity=100000;;endTransactionThreadPoolNums=12;;expectConsumerNumUseFilter=32;;"
    "fastFailIfNoBufferInStorePool=false;;fetchNamesrvAddrByAddressServer=false;;fileReservedTime=72;;"
    "filterDataCleanTimeSpan=86400000;;filterSupportRetry=false;;flushCommitLogLeastPages=4;;"
    "flushCommitLogThoroughInterval=10000;;flushCommitLogTimed=true;;flushConsumeQueueLeastPages=2;;"
    "flushConsumeQueueThoroughInterval=60000;;flushConsumerOffsetHistoryInterval=60000;;"
    "flushConsumerOffsetInterval=5000;;flushDelayOffsetInterval=10000;;flushDiskType=ASYNC_FLUSH;;"
    "flushIntervalCommitLog=500;;flushIntervalConsumeQueue=1000;;flushLeastPagesWhenWarmMapedFile=4096;;"
    "forceRegister=true;;haHousekeepingInterval=20000;;haSendHeartbeatInterval=5000;;haTransferBatchSize=32768;;"
    "heartbeatThreadPoolNums=2;;heartbeatThreadPoolQueueCapacity=50000;;highSpeedMode=false;;isolateLogEnable=false;;"
    "longPollingEnable=true;;mappedFileSizeCommitLog=1073741824;;mappedFileSizeConsumeQueue=6000000;;"
    "mappedFileSizeConsumeQueueExt=50331648;;maxErrorRateOfBloomFilter=20;;maxHashSlotNum=5000000;;"
    "maxIndexNum=20000000;;maxLmqConsumeQueueNum=20000;;maxMessageSize=4194304;;maxMsgsNumBatch=64;;"
    "maxTransferBytesOnMessageInDisk=65536;;maxTransferBytesOnMessageInMemory=262144;;"
    "maxTransferCountOnMessageInDisk=8;;maxTransferCountOnMessageInMemory=32;;"
    "messageDelayLevel=1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h;;messageIndexEnable=true;;"
    "messageIndexSafe=false;;messageStorePlugIn=;;msgTraceTopicName=RMQ_SYS_TRACE_TOPIC;;"
    "notifyConsumerIdsChangedEnable=true;;offsetCheckInSlave=false;;osPageCacheBusyTimeOutMills=1000;;"
    "processReplyMessageThreadPoolNums=20;;pullMessageThreadPoolNums=20;;pullThreadPoolQueueCapacity=100000;;"
    "putMessageFutureThreadPoolNums=2;;putMsgIndexHightWater=600000;;putThreadPoolQueueCapacity=10000;;"
    "queryMessageThreadPoolNums=10;;queryThreadPoolQueueCapacity=20000;;redeleteHangedFileInterval=120000;;"
    "regionId=DefaultRegion;;registerNameServerPeriod=30000;;rejectTransactionMessage=false;;"
    "replyThreadPoolQueueCapacity=10000;;scheduleAsyncDeliverMaxPendingLimit=2000;;"
    "scheduleAsyncDeliverMaxResendNum2Blocked=3;;sendMessageThreadPoolNums=2;;sendThreadPoolQueueCapacity=10000;;"
    "serverAsyncSemaphoreValue=64;;serverCallbackExecutorThreads=0;;serverChannelMaxIdleTimeSeconds=120;;"
    "serverOnewaySemaphoreValue=256;;serverPooledByteBufAllocatorEnable=true;;serverSelectorThreads=3;;"
    "serverSocketBacklog=1024;;serverSocketRcvBufSize=0;;serverSocketSndBufSize=0;;serverWorkerThreads=8;;"
    "shortPollingTimeMills=1000;;slaveReadEnable=false;;slaveTimeout=3000;;startAcceptSendRequestTimeStamp=0;;"
    "storeReplyMessageEnable=true;;syncFlushTimeout=5000;;traceOn=true;;traceTopicEnable=false;;"
    "transactionCheckMax=15;;transactionTimeOut=6000;;transferMsgByHeap=true;;transientStorePoolEnable=false;;"
    "transientStorePoolSize=5;;useEpollNativeSelector=false;;useReentrantLockWhenPutMessage=true;;useTLS=false;;"
    "waitTimeMillsInHeartbeatQueue=31000;;waitTimeMillsInPullQueue=5000;;waitTimeMillsInSendQueue=200;;"
    "waitTimeMillsInTransactionQueue=3000;;warmMapedFileEnable=false;;writeBufferHighWaterMark=0;;"
    "writeBufferLowWaterMark=0;;"
)
_OF_4 = (
    "autoDeleteUnusedStats=false;;commercialBigCount=1;;commercialEnable=true;;commercialTimerCount=1;;"
    "commercialTransCount=1;;filterServerNums=0;;haSlaveFallbehindMax=268435456;;isEnableBatchPush=false;;"
    "maxDelayTime=40;;registerBrokerTimeoutMills=6000;;transactionCheckInterval=60000;;"
)
_SINCE_5_0 = (
    "accessMessageInMemoryHotRatio=26;;accountStatsEnable=true;;accountStatsPrintZeroValues=true;;"
    "ackMessageThreadPoolNums=16;;ackThreadPoolQueueCapacity=100000;;adminBrokerThreadPoolQueueCapacity=10000;;"
    "allAckInSyncStateSet=false;;allowRecallWhenBrokerNotWriteable=true;;appendAckAsync=false;;appendCkAsync=false;;"
    "asyncLearner=false;;asyncSendEnable=true;;autoDeleteUnusedStats=true;;autoMessageVersionOnTopicLen=true;;"
    "batchDispatchRequestThreadPoolNums=16;;bottomMostCompressionTypeForConsumeQueueStore=zstd;;"
    "broadcastOffsetExpireMaxSecond=300;;broadcastOffsetExpireSecond=120;;brokerElectionPriority=2147483647;;"
    "brokerHeartbeatInterval=1000;;brokerNotActiveTimeoutMillis=10000;;cgColdReadThreshold=3145728;;"
    "channelExpiredTimeout=120000;;checkSyncStateSetPeriod=5000;;cleanOfflineBrokerInterval=30000;;"
    "cleanRocksDBDirtyCQIntervalMin=60;;cleanSwapedMapInterval=300000;;clearRetryTopicWhenDeleteTopic=true;;"
    "coldCtrStrategyEnable=false;;coldDataFlowControlEnable=false;;coldDataScanEnable=false;;"
    "commercialSizePerMsg=4096;;commitLogForceSwapMapInterval=43200000;;commitLogSwapMapInterval=3600000;;"
    "commitLogSwapMapReserveFileNum=100;;compactionCqMappedFileSize=10485760;;compactionMappedFileSize=104857600;;"
    "compactionScheduleInternal=900000;;compactionThreadNum=6;;compatibleWithOldNameSrv=true;;"
    "configManagerVersion=v1;;consumerOffsetUpdateVersionStep=500;;controllerAddr=;;"
    "controllerHeartBeatTimeoutMills=10000;;correctLogicMinOffsetForceInterval=300000;;"
    "correctLogicMinOffsetSleepInterval=1;;dataReadAheadEnable=true;;defaultMessageRequestMode=PULL;;"
    "defaultPopShareQueueNum=-1;;delayOffsetUpdateVersionStep=200;;deleteFileBatchMax=10;;"
    "disableCallbackExecutor=false;;disableNettyWorkerGroup=false;;disappearTimeAfterStart=-1;;"
    "diskSpaceCleanForciblyRatio=85;;diskSpaceWarningLevelRatio=90;;dispatchCqCacheNum=4096;;dispatchCqThreads=10;;"
    "dispatchFromSenderThread=false;;enableAsyncReput=true;;enableAutoInSyncReplicas=false;;enableBatchPush=false;;"
    "enableBroadcastOffsetStore=true;;enableBuildConsumeQueueConcurrently=false;;enableCleanExpiredOffset=false;;"
    "enableCompaction=true;;enableControllerMode=false;;enableCreateSysGroup=true;;"
    "enableFastChannelEventProcess=false;;enableLmqStats=false;;enableMixedMessageType=false;;"
    "enableNetWorkFlowControl=false;;enableNotifyAfterPopOrderLockRelease=true;;"
    "enableNotifyBeforePopCalculateLag=true;;enablePopBatchAck=false;;enablePopBufferMerge=false;;"
    "enablePopLog=false;;enablePopMessageThreshold=false;;enableReconnectForGoAway=true;;"
    "enableRegisterProducer=true;;enableRemoteEscape=false;;enableRetryTopicV2=false;;enableRocksDBLog=false;;"
    "enableShutdownGracefully=false;;enableSingleTopicRegister=false;;enableSkipLongAwaitingAck=false;;"
    "enableSlaveActingMaster=false;;enableSplitRegistration=false;;enabledAppendPropCRC=false;;"
    "estimateAccumulation=true;;fetchControllerAddrByDnsLookup=false;;fetchNameSrvAddrByDnsLookup=false;;"
    "fetchNamesrvAddrInterval=10000;;forceVerifyPropCRC=false;;forwardTimeout=3000;;"
    "globalColdReadThreshold=104857600;;haFlowControlEnable=false;;haMaxGapNotInSync=268435456;;"
    "haMaxTimeSlaveNotCatchup=15000;;inSyncReplicas=1;;initPopOffsetByCheckMsgInMem=true;;isBrokerContainer=false;;"
    "isInBrokerContainer=false;;isScanAvailableNameSrv=true;;litePullMessageEnable=true;;"
    "litePullMessageThreadPoolNums=20;;litePullThreadPoolQueueCapacity=100000;;"
    "loadBalancePollNameServerInterval=30000;;loadBalanceProcessorThreadPoolNums=32;;"
    "loadBalanceThreadPoolQueueCapacity=100000;;lockInStrictMode=false;;logicQueueForceSwapMapInterval=43200000;;"
    "logicQueueSwapMapInterval=3600000;;logicQueueSwapMapReserveFileNum=20;;"
    "logicalDiskSpaceCleanForciblyThreshold=0.8;;mappedFileSizeTimerLog=104857600;;mappedFileSwapEnable=true;;"
    "mapperFileSizeBatchConsumeQueue=13800000;;maxAsyncPutMessageRequests=5000;;maxBatchDeleteFilesNum=50;;"
    "maxChecksumRange=1073741824;;maxConsumeQueueScan=20000;;maxFilterMessageSize=16000;;"
    "maxHaTransferByteInSecond=104857600;;maxOffsetMapSize=104857600;;maxPopPollingSize=100000;;"
    "maxReconnectIntervalTimeSeconds=60;;maxRecoveryCommitlogFiles=30;;maxSlaveResendLength=268435456;;"
    "maxStatsIdleTimeInMinutes=-1;;maxTopicLength=127;;memTableFlushIntervalMs=3600000;;"
    "metricGrpcExporterIntervalInMills=60000;;metricGrpcExporterTimeOutInMills=3000;;"
    "metricLoggingExporterIntervalInMills=10000;;metricsExporterType=DISABLE;;metricsGrpcExporterHeader=;;"
    "metricsGrpcExporterTarget=;;metricsInDelta=false;;metricsLabel=;;metricsOtelCardinalityLimit=50000;;"
    "metricsPromExporterHost=;;metricsPromExporterPort=5557;;minInSyncReplicas=1;;popCkMaxBufferSize=200000;;"
    "popCkOffsetMaxQueueSize=20000;;popCkStayBufferTime=10000;;popCkStayBufferTimeOut=3000;;"
    "popConsumerFSServiceInit=true;;popConsumerKVServiceEnable=false;;popConsumerKVServiceInit=false;;"
    "popConsumerKVServiceLog=false;;popFromRetryProbability=20;;popInflightMessageThreshold=10000;;"
    "popLongPollingForceNotifyInterval=800;;popPollingMapSize=100000;;popPollingSize=1024;;"
    "popResponseReturnActualRetryTopic=false;;popReviveMaxAttemptTimes=16;;popReviveMaxReturnSizePerRead=16384;;"
    "printChannelGroups=false;;printChannelGroupsMinNum=5;;pullBatchMaxMessageCount=160;;"
    "putConsumeQueueDataByFileChannel=true;;putMessageTimeout=8000;;readUnCommitted=false;;"
    "realTimeNotifyConsumerChange=true;;realTimePersistRocksDBConfig=true;;recallMessageEnable=false;;"
    "recheckReputOffsetFromCq=false;;recoverConcurrently=false;;recoverThreadPoolNums=32;;"
    "registerBrokerTimeoutMills=24000;;rejectPullConsumerEnable=false;;replicasPerDiskPartition=1;;"
    "retrieveMessageFromPopRetryTopicV1=true;;reviveAckWaitMs=180000;;reviveInterval=1000;;reviveMaxSlow=3;;"
    "reviveQueueNum=8;;reviveScanTime=10000;;rocksdbCQDoubleWriteEnable=false;;rocksdbCompressionType=lz4;;"
    "rocksdbFlushWalFrequency=1024;;rocksdbWalFileRollingThreshold=1073741824;;sampleCountThreshold=5000;;"
    "sampleSteps=32;;searchBcqByCacheEnable=true;;sendHeartbeatTimeoutMillis=1000;;serverLoadBalancerEnable=true;;"
    "serverNettyWorkerGroupEnable=true;;shutdownWaitTimeSeconds=30;;skipPreOnline=false;;"
    "skipWhenCKRePutReachMaxTimes=false;;socksProxyConfig={};;spinLockCollisionRetreatOptimalDegree=1000;;"
    "splitRegistrationSize=800;;statRocksDBCQIntervalSec=10;;storeType=default;;subscriptionExpiredTimeout=600000;;"
    "syncBrokerMemberGroupPeriod=1000;;syncBrokerMetadataPeriod=5000;;syncControllerMetadataPeriod=10000;;"
    "syncFromLastFile=false;;syncMasterFlushOffsetWhenStartup=false;;timerCheckMetricsWhen=05;;"
    "timerColdDataCheckIntervalMs=60000;;timerCongestNumEachSlot=2147483647;;timerEnableCheckMetrics=true;;"
    "timerEnableDisruptor=false;;timerEnableRetryUntilSuccess=false;;timerFlushIntervalMs=1000;;"
    "timerGetMessageThreadNum=3;;timerInterceptDelayLevel=false;;timerMaxDelaySec=259200;;"
    "timerMetricSmallThreshold=1000000;;timerPrecisionMs=1000;;timerProgressLogIntervalMs=10000;;"
    "timerPutMessageThreadNum=3;;timerRollWindowSlot=172800;;timerSkipUnknownError=false;;timerStopDequeue=false;;"
    "timerStopEnqueue=false;;timerWarmEnable=false;;timerWheelEnable=true;;topicQueueLockNum=32;;totalReplicas=1;;"
    "transactionCheckInterval=30000;;transactionMetricFlushInterval=3000;;transactionOpBatchInterval=3000;;"
    "transactionOpMsgMaxSize=4096;;travelCqFileNumWhenGetMessage=1;;updateNameServerAddrPeriod=120000;;"
    "useABSLock=false;;usePIDColdCtrStrategy=true;;useServerSideResetOffset=true;;useStaticSubscription=false;;"
    "validateSystemTopicWhenUpdateTopic=true;;waitTimeMillsInAckQueue=3000;;waitTimeMillsInAdminBrokerQueue=5000;;"
    "waitTimeMillsInLitePullQueue=5000;;wakeCommitWhenPutMessage=true;;wakeFlushWhenPutMessage=false;;"
)
_AUTHENTICATION = (
    "aclCacheExpiredSecond=600;;aclCacheMaxNum=1000;;aclCacheRefreshSecond=60;;authenticationEnabled=false;;"
    "authorizationEnabled=false;;migrateAuthFromV1Enabled=false;;statefulAuthenticationCacheExpiredSecond=60;;"
    "statefulAuthenticationCacheMaxNum=10000;;statefulAuthorizationCacheExpiredSecond=60;;"
    "statefulAuthorizationCacheMaxNum=10000;;userCacheExpiredSecond=600;;userCacheMaxNum=1000;;"
    "userCacheRefreshSecond=60;;"
)
_SINCE_5_4 = (
    "appendTopicForTimerDeleteKey=false;;checkCommitLogOffsetOnRecover=false;;combineAssignOffsetCQType=default;;"
    "combineCQEnableCheckSelf=false;;combineCQLoadingCQTypes=default;defaultRocksDB;;"
    "combineCQMaxExtraSearchCommitLogFiles=3;;combineCQPreferCQType=default;;combineCQUseRocksdbForLmq=false;;"
    "commitLogRecoverMaxNum=10;;enableAcceleratedRecovery=false;;enableConnectionMetrics=true;;"
    "enableLagAndDlqMetrics=true;;enableLiteEventMode=true;;enableLitePopLog=false;;enableLmqQuota=false;;"
    "enableLogConsumeQueueRepeatedlyBuildWhenRecover=false;;enableMessageStoreMetrics=true;;enablePopMetrics=true;;"
    "enableRemotingMetrics=true;;enableRequestMetrics=true;;enableRunningFlagsInFlush=false;;"
    "enableSplitMetadata=true;;enableStatsMetrics=true;;enableTransactionMetrics=true;;indexFileReadEnable=true;;"
    "indexFileWriteEnable=true;;indexRocksDBEnable=false;;iteratorWhenUseRocksdbConsumeQueue=true;;"
    "liteEventCheckInterval=10000;;liteEventFullDispatchDelayTime=10000;;"
    "liteEventFullDispatchDelayTimeForWildcardGroup=10000;;liteLagCountMetricsEnable=false;;"
    "liteLagLatencyCollectEnable=false;;liteLagLatencyMetricsEnable=false;;liteLagLatencyTopK=50;;"
    "liteSubscriptionCheckInterval=120000;;liteSubscriptionCheckTimeoutMills=180000;;liteTtlCheckInterval=120000;;"
    "maxClientEventCount=100;;maxLiteSubscriptionCount=100000;;maxMessageFilterNumForNotification=64;;"
    "maxRocksDBIndexQueryDays=7;;metricsExportBatchMaxDataPoints=1000;;minLiteTTl=900000;;"
    "persistConsumerOffsetIncrementally=false;;popFromRetryProbabilityForPriority=0;;"
    "popPollingMapExpireTimeSeconds=600;;popReviveConcurrency=32;;popReviveSkipIfGroupAbsent=true;;"
    "priorityOrderAsc=true;;sharedByteBufferNum=16;;splitMetadataSize=2000;;timerRecallToTimeWheelEnable=true;;"
    "timerRecallToTimelineEnable=true;;timerReputServiceCorePoolSize=6;;timerReputServiceMaxPoolSize=6;;"
    "timerReputServiceQueueCapacity=10000;;timerRocksDBEnable=false;;timerRocksDBPrecisionMs=1000;;"
    "timerRocksDBRollIntervalHours=1;;timerRocksDBRollMaxTps=8000.0;;timerRocksDBRollRangeHours=2;;"
    "timerRocksDBStopScan=false;;timerRocksDBTimeExpiredMaxTps=200000.0;;timerWheelSnapshotFlush=false;;"
    "timerWheelSnapshotIntervalMs=10000;;transRocksDBEnable=false;;transWriteOriginTransHalfEnable=true;;"
    "transactionCheckRocksdbCoreThreads=2;;transactionCheckRocksdbMaxThreads=5;;"
    "transactionCheckRocksdbQueueCapacity=2000;;transactionMetricFlushInterval=10000;;"
    "useMessageFilterForNotification=true;;useSeparateRetryQueue=false;;useSeparateStorePathForRocksdbCQ=false;;"
    "useSingleRocksDBForAllConfigs=false;;writeWithoutMmap=false;;"
)
_NAME_SERVER_OF_4 = (
    "clusterTest=false;;configBlackList=configBlackList;configStorePath;kvConfigPath;;orderMessageEnable=false;;"
    "productEnvName=center;;serverAsyncSemaphoreValue=64;;serverCallbackExecutorThreads=0;;"
    "serverChannelMaxIdleTimeSeconds=120;;serverOnewaySemaphoreValue=256;;serverPooledByteBufAllocatorEnable=true;;"
    "serverSelectorThreads=3;;serverSocketBacklog=1024;;serverSocketRcvBufSize=0;;serverSocketSndBufSize=0;;"
    "serverWorkerThreads=8;;useEpollNativeSelector=false;;writeBufferHighWaterMark=0;;writeBufferLowWaterMark=0;;"
)
_NAME_SERVER_SINCE_5_0 = (
    "clientRequestThreadPoolNums=8;;clientRequestThreadPoolQueueCapacity=50000;;defaultThreadPoolNums=16;;"
    "defaultThreadPoolQueueCapacity=10000;;deleteTopicWithBrokerRegistration=false;;enableAllTopicList=true;;"
    "enableControllerInNamesrv=false;;enableShutdownGracefully=false;;enableTopicList=true;;"
    "needWaitForService=false;;notifyMinBrokerIdChanged=false;;returnOrderTopicConfigToBroker=true;;"
    "scanNotActiveBrokerInterval=5000;;serverNettyWorkerGroupEnable=true;;shutdownWaitTimeSeconds=30;;"
    "supportActingMaster=false;;unRegisterBrokerQueueCapacity=3000;;waitSecondsForService=45;;"
)


@cache
def broker_defaults(release: Release) -> Mapping[str, str]:
    """Return the keys that a broker of a version has, with their defaults."""
    if not release.message_types:
        return _parsed(_ALL) | _parsed(_OF_4)
    newest = _parsed(_SINCE_5_4) if release.has_tag_queries else {}
    return _parsed(_ALL) | _parsed(_SINCE_5_0) | newest


@cache
def conf_defaults(release: Release) -> Mapping[str, str]:
    """Return the keys that a broker.conf of a version can have, with their defaults. Brokers of 5.x read those of
    authentication too, and do not name them among their own."""
    more = _parsed(_AUTHENTICATION) if release.message_types else {}
    return {**broker_defaults(release), **more}


@cache
def name_server_defaults(release: Release) -> Mapping[str, str]:
    """Return the keys that a name server of a version has, with their defaults."""
    newer = _parsed(_NAME_SERVER_SINCE_5_0) if release.message_types else {}
    return _parsed(_NAME_SERVER_OF_4) | newer


def rocketmq_home() -> str:
    """Return the folder that servers take for the one of RocketMQ's installation."""
    return os.environ.get("ROCKETMQ_HOME") or os.path.expanduser("~")


def name_server_paths() -> dict[str, str]:
    """Return where a name server that has no other folder keeps its files (NamesrvConfig), by key."""
    folder = os.path.join(os.path.expanduser("~"), "namesrv")
    return {
        "rocketmqHome": rocketmq_home(),
        "kvConfigPath": os.path.join(folder, "kvConfig.json"),
        "configStorePath": os.path.join(folder, "namesrv.properties"),
    }


def _parsed(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(_SEPARATOR) if part)
    return {key: value for key, _, value in pairs}
