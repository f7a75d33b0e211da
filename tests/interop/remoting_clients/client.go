// What RocketMQ's Go client (remoting) sees at a broker: a JSON line each, without ids and times.
//
//	client HOST:PORT PREFIX
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const most = 60 * time.Second

var (
	namesrv = primitive.NewPassthroughResolver([]string{os.Args[1]})
	prefix  = os.Args[2]
	ctx     = context.Background()
)

func show(what string, found any) {
	text, err := json.Marshal([]any{what, found})
	need(err)
	fmt.Println(string(text))
}

func need(err error) {
	if err != nil {
		panic(err)
	}
}

func message(topic, body string) *primitive.Message {
	return primitive.NewMessage(prefix+topic, []byte(body))
}

// what a message holds that does not differ from run to run
func seen(one *primitive.MessageExt) map[string]any {
	properties := map[string]string{}
	for name, text := range one.GetProperties() {
		switch name {
		case "UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "CLUSTER", "__transactionId__", "ORIGIN_MESSAGE_ID":
		case "TRACE_ON", "MSG_REGION": // of the broker's, beside those of the message
		default:
			properties[name] = text
		}
	}
	body := string(one.Body)
	return map[string]any{
		"topic": one.Topic, "body": body[:min(len(body), 40)], "size": len(body), "flag": one.Flag,
		"sysFlag": one.SysFlag, "reconsumed": one.ReconsumeTimes, "properties": properties,
	}
}

type bodies struct {
	sync.Mutex
	found []*primitive.MessageExt
}

func (b *bodies) wait(count int) []*primitive.MessageExt {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		b.Lock()
		if len(b.found) >= count {
			b.Unlock()
			break
		}
		b.Unlock()
	}
	b.Lock()
	defer b.Unlock()
	return append([]*primitive.MessageExt{}, b.found...)
}

func all(found []*primitive.MessageExt) []map[string]any {
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		return string(a.Body) < string(b.Body) || string(a.Body) == string(b.Body) && a.ReconsumeTimes < b.ReconsumeTimes
	})
	shown := []map[string]any{}
	for _, one := range found {
		shown = append(shown, seen(one))
	}
	return shown
}

// consume has a push consumer take messages until there are `count`, and a little longer; `failing` ones are sent back
func consume(group, topic string, count int, selector consumer.MessageSelector, failing string, more ...consumer.Option) []*primitive.MessageExt {
	var taken bodies
	options := append([]consumer.Option{
		consumer.WithGroupName(prefix + group), consumer.WithNsResolver(namesrv), consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)
	c, err := rocketmq.NewPushConsumer(options...)
	need(err)
	need(c.Subscribe(prefix+topic, selector, func(_ context.Context, many ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		taken.Lock()
		defer taken.Unlock()
		taken.found = append(taken.found, many...)
		for _, one := range many {
			if string(one.Body) == failing && one.ReconsumeTimes == 0 {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	need(c.Start())
	taken.wait(count)
	time.Sleep(time.Second)
	need(c.Shutdown())
	return taken.wait(count)
}

func sends(p rocketmq.Producer) {
	one := message("plain", "all").WithTag("a").WithKeys([]string{"k1", "k2"})
	one.WithProperty("n", "5")
	for _, each := range []*primitive.Message{message("plain", "plain"), one, message("plain", strings.Repeat("b", 100_000)).WithTag("b")} {
		sent, err := p.SendSync(ctx, each)
		need(err)
		show("sent", []any{sent.Status, sent.MessageQueue.QueueId, sent.QueueOffset, len(sent.OffsetMsgID)})
	}
	done := make(chan any)
	need(p.SendAsync(ctx, func(_ context.Context, sent *primitive.SendResult, err error) {
		if err != nil {
			done <- err.Error()
			return
		}
		done <- sent.Status
	}, message("plain", "asynchronous").WithTag("a")))
	show("sent later", <-done)
	sent, err := p.SendSync(ctx, message("plain", "batch 0"), message("plain", "batch 1"))
	need(err)
	show("sent together", []any{sent.Status, sent.QueueOffset})
	need(p.SendOneWay(ctx, message("plain", "one way")))
	any := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	show("received", all(consume("g-all", "plain", 7, any, "")))
	show("by tag", all(consume("g-tags", "plain", 2, consumer.MessageSelector{Type: consumer.TAG, Expression: "a || c"}, "")))
	show("by SQL", all(consume("g-sql", "plain", 1, consumer.MessageSelector{Type: consumer.SQL92, Expression: "n > 4"}, "")))
	show("again", all(consume("g-invisible", "plain", 8, any, "plain")))
	_, err = p.SendSync(ctx, message("plain", strings.Repeat("x", 5<<20)))
	show("too large", err != nil)
}

func ordered(p rocketmq.Producer) {
	for number := range 6 {
		_, err := p.SendSync(ctx, message("fifo", fmt.Sprint(number)).WithShardingKey("m"))
		need(err)
	}
	any := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	order := ""
	for _, one := range consume("g-fifo", "fifo", 6, any, "", consumer.WithConsumerOrder(true)) {
		order += string(one.Body)
	}
	show("in order", order)
}

func delayed(p rocketmq.Producer) {
	begun := time.Now()
	_, err := p.SendSync(ctx, message("delay", "by level").WithDelayTimeLevel(2))
	need(err)
	_, err = p.SendSync(ctx, message("delay", "at a time").WithDelayTimestamp(begun.Add(5*time.Second)))
	need(err)
	found := consume("g-delay", "delay", 2, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, "")
	names := []string{}
	for _, one := range found {
		names = append(names, string(one.Body))
	}
	sort.Strings(names)
	show("delayed", names)
	show("not early", time.Since(begun) > 4*time.Second)
}

type listener struct {
	sync.Mutex
	asked map[string]bool
}

func (*listener) ExecuteLocalTransaction(one *primitive.Message) primitive.LocalTransactionState {
	switch string(one.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

func (l *listener) CheckLocalTransaction(one *primitive.MessageExt) primitive.LocalTransactionState {
	l.Lock()
	defer l.Unlock()
	l.asked[string(one.Body)] = true
	return primitive.CommitMessageState
}

func transactions() {
	l := &listener{asked: map[string]bool{}}
	p, err := rocketmq.NewTransactionProducer(l, producer.WithNsResolver(namesrv), producer.WithGroupName(prefix+"pg-tx"), producer.WithInstanceName("tx"))
	need(err)
	need(p.Start())
	for _, body := range []string{"commit", "rollback", "orphan"} {
		sent, err := p.SendMessageInTransaction(ctx, message("tx", body))
		need(err)
		show("half", []any{sent.Status, sent.State})
	}
	found := consume("g-tx", "tx", 2, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, "")
	names := []string{}
	for _, one := range found {
		names = append(names, string(one.Body))
	}
	sort.Strings(names)
	show("committed", names)
	l.Lock()
	show("asked for", l.asked)
	l.Unlock()
	need(p.Shutdown())
}

func pulled() {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithGroupName(prefix+"g-push"), consumer.WithNsResolver(namesrv), consumer.WithInstance("pull"),
	)
	need(err)
	need(c.Subscribe(prefix+"plain", consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	need(c.Start())
	queues, err := c.GetTopicRouteInfo(prefix + "plain")
	need(err)
	show("queues", len(queues))
	found, err := c.PullFrom(ctx, queues[0], 0, 3)
	need(err)
	show("pulled", []any{found.Status, found.NextBeginOffset, found.MinOffset})
	found, err = c.PullFrom(ctx, queues[0], 1000, 3)
	need(err)
	show("beyond the end", []any{found.Status, found.NextBeginOffset})
	earliest, err := c.OffsetForTimestamp(queues[0], 0)
	show("at a time", []any{earliest, err == nil})
	need(c.Shutdown())
}

func requested(p rocketmq.Producer) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(prefix+"g-large"), consumer.WithNsResolver(namesrv), consumer.WithInstance("replies"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	need(err)
	need(c.Subscribe(prefix+"large", consumer.MessageSelector{}, func(_ context.Context, many ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, one := range many {
			answer := primitive.NewMessage("DefaultCluster_REPLY_TOPIC", []byte("answer to "+string(one.Body)))
			for name, text := range one.GetProperties() {
				if name == "CORRELATION_ID" || name == "REPLY_TO_CLIENT" || name == "TTL" {
					answer.WithProperty(name, text)
				}
			}
			answer.WithProperty("MSG_TYPE", "reply")
			_, err := p.SendSync(ctx, answer)
			need(err)
		}
		return consumer.ConsumeSuccess, nil
	}))
	need(c.Start())
	answer, err := p.Request(ctx, 30*time.Second, message("large", "question"))
	if err != nil {
		show("answered", err.Error())
	} else {
		show("answered", string(answer.Body))
	}
	need(c.Shutdown())
}

func main() {
	rlog.SetLogLevel("fatal")
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(namesrv), producer.WithGroupName(prefix+"pg"), producer.WithRetry(2),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	need(err)
	need(p.Start())
	sends(p)
	ordered(p)
	delayed(p)
	transactions()
	pulled()
	requested(p)
	need(p.Shutdown())
}
