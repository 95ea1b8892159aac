// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Three requests a minute: the fourth is told when to come back.
func Example() {
	client, err := limiter.NewClient(os.Getenv("REDIS_URL")) // redis://localhost:6379
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	window, err := limiter.NewSlidingWindow(client, limiter.Options{})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	for range 4 {
		d, err := window.Check(ctx, "user_8421", 3, time.Minute)
		switch {
		case err != nil:
			fmt.Println("Redis could not be asked:", err)
		case d.Allowed:
			fmt.Println("admitted, remaining:", d.Remaining)
		default:
			fmt.Println("rejected, retry within", d.RetryAfter.Round(time.Minute))
		}
	}

	// Support lets the user through again: redis-cli DEL ratelimit:user_8421:60
	client.Del(ctx, limiter.Subject{User: "user_8421"}.Key(time.Minute))
	// Output:
	// admitted, remaining: 2
	// admitted, remaining: 1
	// admitted, remaining: 0
	// rejected, retry within 1m0s
}

// A minute and a day in one call: the answer names the limit that is closest to exhaustion or,
// when the request is rejected, the one that rejected it.
func ExampleSlidingWindow_CheckAll() {
	client, err := limiter.NewClient(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	window, err := limiter.NewSlidingWindow(client, limiter.Options{})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	subject := limiter.Subject{Tenant: "acme", Route: "suggest-categories", User: "user123"}
	perMinute := limiter.Limit{Requests: 60, Window: time.Minute}
	perDay := limiter.Limit{Requests: 2, Window: 24 * time.Hour}
	for range 3 {
		d, err := window.CheckAll(ctx, subject, perMinute, perDay)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining, "of", d.Limit.Requests, "in", d.Limit.Window)
	}

	client.Del(ctx, subject.Key(perMinute.Window), subject.Key(perDay.Window))
	// Output:
	// true 1 of 2 in 24h0m0s
	// true 0 of 2 in 24h0m0s
	// false 0 of 2 in 24h0m0s
}

func ExampleSubject_Key() {
	fmt.Println(limiter.Subject{User: "user_8421"}.Key(time.Minute))
	fmt.Println(limiter.Subject{Tenant: "acme", Route: "suggest-categories", User: "user123"}.Key(time.Minute))
	fmt.Println(limiter.Subject{Kind: limiter.KindAddress, User: "2001:db8::1"}.Key(24 * time.Hour))
	// Output:
	// ratelimit:user_8421:60
	// acme:ratelimit:suggest-categories:user123:60
	// ratelimit:%ip.2001%3Adb8%3A%3A1:86400
}

// Support lets a user through for an hour: two requests more than the limit of one a minute.
func ExampleSlidingWindow_Grant() {
	client, err := limiter.NewClient(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	window, err := limiter.NewSlidingWindow(client, limiter.Options{})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, _, err := window.Grant(ctx, limiter.Subject{User: "user_17"}, 2, time.Hour); err != nil {
		log.Fatal(err)
	}
	for range 4 {
		d, err := window.Check(ctx, "user_17", 1, time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}
