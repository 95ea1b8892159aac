// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// touch asks for each path once, over a few connections and several requests ahead of the answers.
// Every answer must be 200 or 429.
func touch(ctx context.Context, addr string, paths []string) error {
	const connections = 16
	group, ctx := errgroup.WithContext(ctx)
	share := (len(paths) + connections - 1) / connections
	for start := 0; start < len(paths); start += share {
		group.Go(func() error { return touchSome(ctx, addr, paths[start:min(start+share, len(paths))]) })
	}
	return group.Wait()
}

func touchSome(ctx context.Context, addr string, paths []string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(time.Minute))
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	answers := bufio.NewReader(connection)
	const ahead = 16
	for start := 0; start < len(paths); start += ahead {
		batch := paths[start:min(start+ahead, len(paths))]
		var requests strings.Builder
		for _, path := range batch {
			fmt.Fprintf(&requests, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", path)
		}
		if _, err := io.WriteString(connection, requests.String()); err != nil {
			return err
		}
		for _, path := range batch {
			if err := readAnswer(answers, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func readAnswer(from *bufio.Reader, path string) error {
	answer, err := http.ReadResponse(from, nil)
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("GET %s: %s: %s", path, answer.Status, body)
	}
	return nil
}
