// Consume, transform, produce with franz-go: what copy_confluent.py, which says more, does with
// another client.
//
// Arguments: bootstrap servers, input topic, output topic, group, transactional id.
package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	batch        = 200
	doomedEach   = 7
	mustStartNew = 3
)

func main() {
	bootstrap, input, output, group, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(4*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.DefaultProduceTopic(output),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		end(err)
	}
	defer session.Close()
	for transactions := 1; ; {
		waiting, cancel := context.WithTimeout(stopping, 100*time.Millisecond)
		fetches := session.PollRecords(waiting, batch)
		cancel()
		if stopping.Err() != nil {
			return
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		doomed := transactions%doomedEach == 0
		transactions++
		if err := carryOver(session, fetches, doomed); err != nil {
			end(err)
		}
	}
}

// carryOver does it in one transaction. An error means that this producer cannot go on.
func carryOver(session *kgo.GroupTransactSession, fetches kgo.Fetches, doomed bool) error {
	if err := session.Begin(); err != nil {
		return err
	}
	all := context.Background()
	promise := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		value := transform(record.Value)
		if doomed {
			value = "doomed " + value
		}
		session.Produce(all, &kgo.Record{Key: record.Key, Value: []byte(value)}, promise.Promise())
	})
	if doomed {
		if err := session.Client().Flush(all); err != nil {
			return err
		}
	}
	failure := promise.Err()
	isCommitted, err := session.End(all, kgo.TransactionEndTry(failure == nil && !doomed))
	if !isCommitted && !doomed {
		fmt.Println("aborted:", failure)
	}
	return err
}

func transform(value []byte) string {
	number, _, _ := bytes.Cut(value, []byte(" "))
	return fmt.Sprintf("%s %08x", number, crc32.ChecksumIEEE(value))
}

func end(err error) {
	fmt.Println("must start anew:", err)
	os.Exit(mustStartNew)
}
