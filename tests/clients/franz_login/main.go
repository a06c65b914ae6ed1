// Log in with franz-go, write a record, and read it back as a member of a group.
//
// The login comes as JSON on standard input (login_clients.py); topic, group and value are the
// arguments. An error of authentication ends the program at once, as it would an application.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const deadline = 30 * time.Second

type login struct {
	Mechanism   string
	Bootstrap   string
	Authority   string
	Certificate string
	User        string
	Password    string
	Token       string
}

func main() {
	var who login
	if err := json.NewDecoder(os.Stdin).Decode(&who); err != nil {
		end(err)
	}
	topic, group, value := os.Args[1], os.Args[2], os.Args[3]
	encryption, err := who.encryption()
	if err != nil {
		end(err)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(who.Bootstrap),
		kgo.DialTLSConfig(encryption),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(topic),
	}
	if mechanism := who.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		end(err)
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		end(err)
	}
	record := &kgo.Record{Value: []byte(value)}
	if err := client.ProduceSync(limited, record).FirstErr(); err != nil {
		end(err)
	}
	for limited.Err() == nil {
		fetches := client.PollFetches(limited)
		if err := fetches.Err(); err != nil {
			end(err)
		}
		isThere := false
		fetches.EachRecord(func(found *kgo.Record) {
			isThere = isThere || string(found.Value) == value
		})
		if isThere {
			return
		}
	}
	end(errors.New("the record did not come back"))
}

func (who login) encryption() (*tls.Config, error) {
	pem, err := os.ReadFile(who.Authority)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	if who.Mechanism == "" {
		pair, err := tls.LoadX509KeyPair(who.Certificate, who.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (who login) mechanism() sasl.Mechanism {
	password := scram.Auth{User: who.User, Pass: who.Password}
	switch who.Mechanism {
	case "SCRAM-SHA-256":
		return password.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return password.AsSha512Mechanism()
	case "PLAIN":
		return plain.Auth{User: who.User, Pass: who.Password}.AsMechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: who.Token}.AsMechanism()
	}
	return nil
}

func end(err error) {
	if errors.Is(err, kerr.SaslAuthenticationFailed) {
		fmt.Fprint(os.Stderr, "authentication failed: ")
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
