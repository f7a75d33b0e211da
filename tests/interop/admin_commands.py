"""The commands of mqadmin that two brokers are asked: BROKER and NAMESRV stand for addresses, FOLDER for a folder."""

from __future__ import annotations

READING = """
clusterList
clusterList -m
topicList
topicList -c
topicRoute -t Events
topicRoute -t Events -l
topicRoute -t Nothing
topicStatus -t Events
topicStatus -t Nothing
topicClusterList -t Events
brokerStatus -b BROKER
getBrokerConfig -b BROKER
getNamesrvConfig
getConsumerConfig -g g-events
queryMsgByKey -t Orders -k order-3
queryMsgByKey -t Orders -k none
queryMsgByUniqueKey -t Orders -i 7F0000010000000000000000000000FF
queryMsgByOffset -t Events -b broker-a -i 3 -o 2
queryMsgById -t Events -i 7F000001000000000000000000000000
queryMsgTraceById -i 7F0000010000000000000000000000FF
printMsg -t AutoMade -d true
printMsgByQueue -t Events -a broker-a -i 3 -p true -d true -f true
brokerConsumeStats -b BROKER
producerConnection -g none -t Events
consumerConnection -g g-events
consumerProgress
consumerProgress -g g-events
consumerProgress -g g-never
consumerStatus -g g-events
producer -b BROKER
allocateMQ -t Events -i 1.1.1.1,2.2.2.2
queryCq -t Events -q 3 -i 2 -c 3 -b BROKER
queryCq -t Events -q 3 -i 2 -c 3 -b BROKER -g g-events
haStatus -b BROKER
exportMetadata -c DefaultCluster -f FOLDER
exportConfigs -c DefaultCluster -f FOLDER
exportMetrics -c DefaultCluster -f FOLDER
consumeMessage -t Events -b broker-a -i 3 -o 0 -c 3
statsAll
getBrokerEpoch -b BROKER
getColdDataFlowCtrInfo -b BROKER
checkRocksdbCqWriteProgress -c DefaultCluster -t Events
getUser -b BROKER -u somebody
listUser -b BROKER
getAcl -b BROKER -s User:somebody
listAcl -b BROKER
getBrokerLiteInfo -b BROKER
getParentTopicInfo -p Events
getLiteTopicInfo -p Events -l L
getLiteClientInfo -p Events -g g-events -c nobody
getLiteGroupInfo -p Events -g g-events
clusterAclConfigVersion -b BROKER
getAclConfig -b BROKER
"""

WRITING = """
updateTopic -b BROKER -t New -r 4 -w 4
updateTopic -b BROKER -t Typed -r 1 -w 1 -a +message.type=FIFO
updateTopic -b BROKER -t Typed -r 1 -w 1 -a +message.type=NONSENSE
updateTopic -c DefaultCluster -t Everywhere -r 2 -w 2
topicRoute -t New
updateTopicPerm -b BROKER -t New -p 4
updateTopicPerm -b BROKER -t New -p 6
updateTopicList -b BROKER -f FOLDER/topics.json
updateSubGroup -b BROKER -g g-made -r 3
updateSubGroupList -b BROKER -f FOLDER/groups.json
getConsumerConfig -g g-made
setConsumeMode -b BROKER -t New -g g-made -m PULL -q 1
sendMessage -t New -p hello -k k1 -c tagA -b broker-a -i 1
topicStatus -t New
consumeMessage -t New -b broker-a -i 1 -o 0 -c 1
cloneGroupOffset -s g-events -d g-made -t Events -o true
consumerProgress -g g-made
resetOffsetByTime -g g-events -t Events -s -1
consumerProgress -g g-events
resetOffsetByTime -g g-never -t Events -s 0
consumerProgress -g g-never
updateSubGroup -b BROKER -g g-fresh
resetOffsetByTime -g g-fresh -t Events -s 0
consumerProgress -g g-fresh
consumerProgress
skipAccumulatedMessage -g g-orders -t Orders
consumerProgress -g g-orders
updateOrderConf -t Events -m put -v broker-a:4
updateOrderConf -t Events -m get
updateOrderConf -t Events -m delete
updateKvConfig -s N -k K -v V
deleteKvConfig -s N -k K
wipeWritePerm -b broker-a
topicRoute -t Events -l
addWritePerm -b broker-a
topicRoute -t Events -l
updateBrokerConfig -b BROKER -k brokerPermission -v 6
updateNamesrvConfig -k orderMessageEnable -v true
cleanExpiredCQ -b BROKER
cleanUnusedTopic -b BROKER
deleteExpiredCommitLog -b BROKER
resetMasterFlushOffset -b BROKER -o 0
updateColdDataFlowCtrGroupConfig -b BROKER -g g-events -v 1
removeColdDataFlowCtrGroupConfig -b BROKER -g g-events
setCommitLogReadAheadMode -b BROKER -m 1
createUser -b BROKER -u somebody -p secret
updateUser -b BROKER -u somebody -p other
deleteUser -b BROKER -u somebody
createAcl -b BROKER -s User:somebody -r Topic:Events -a Pub -d Allow
updateAcl -b BROKER -s User:somebody -r Topic:Events -a Pub -d Allow
deleteAcl -b BROKER -s User:somebody
updateAclConfig -b BROKER -a accessKey1 -s secretKey1
deleteAclConfig -b BROKER -a accessKey1
updateGlobalWhiteAddr -b BROKER -g 10.0.0.1
updateStaticTopic -t Static -qn 4 -b broker-a
remappingStaticTopic -t Static -b broker-a
exportPopRecord -b BROKER
switchTimerEngine -b BROKER -e F
triggerLiteDispatch -p Events -g g-events
sendMsgStatus -b broker-a -s 16 -c 2
checkMsgSendRT -t Audit -a 2 -s 16
deleteSubGroup -b BROKER -g g-made
deleteTopic -c DefaultCluster -t New
topicList
topicRoute -t New
"""

LEFT_OUT = {
    "startMonitoring": "does not end",
    "clusterRT": "does not end",
    "addBroker": "asks a broker container",
    "removeBroker": "asks a broker container",
    "getSyncStateSet": "asks a controller",
    "getControllerMetaData": "asks a controller",
    "getControllerConfig": "asks a controller",
    "updateControllerConfig": "asks a controller",
    "electMaster": "asks a controller",
    "cleanBrokerMetadata": "asks a controller",
    "exportMetadataInRocksDB": "reads a local RocksDB",
    "rocksDBConfigToJson": "reads a local RocksDB",
    "dumpCompactionLog": "reads a local file",
    "copyUser": "asks two brokers with authentication",
    "copyAcl": "asks two brokers with authentication",
}
"""Commands that no broker or name server of ours is asked, and why."""
