// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// maxWait is the longest wait, in microseconds, that a time.Duration of whole seconds can express.
const maxWait = math.MaxInt64 / int64(time.Second) * (int64(time.Second) / int64(time.Microsecond))

// decide turns the script's reply into a decision.
func decide(reply any, budgets []Budget) (Decision, error) {
	numbers, ok := integers(reply)
	windows := int64(windowsOf(budgets))
	switch {
	case !ok || len(numbers) < 2 || numbers[0] < -windows || numbers[0] > windows:
	case numbers[0] < 0 && len(numbers) == 2 && numbers[1] > 0:
		return Decision{}, errUndecided
	case numbers[0] > 0 && len(numbers) == 2 && numbers[1] > 0 && numbers[1] <= maxWait:
		d := rejected(numbers[1])
		d.Budget, d.Limit = window(budgets, int(numbers[0]-1))
		return d, nil
	case numbers[0] == 0 && int64(len(numbers)) == 1+windows:
		if d, ok := admitted(numbers[1:], budgets, nil); ok {
			return d, nil
		}
	case numbers[0] == 0 && int64(len(numbers)) == 1+windows+3:
		if grant, ok := grantUse(numbers[1+windows:]); ok {
			if d, ok := admitted(numbers[1:1+windows], budgets, grant); ok {
				return d, nil
			}
		}
	}
	return Decision{}, fmt.Errorf("%w: %v", ErrReply, reply)
}

// errUndecided is the error for a budget that has room, or not: that depends on requests which hold
// reservations in it and are not decided themselves.
var errUndecided = errors.New("the budget is reserved by requests that are not decided; one of their logs is in a Redis that does not answer")

// rejected is the decision to reject for so many microseconds.
func rejected(wait int64) Decision {
	return Decision{RetryAfter: wholeSeconds(wait), Wait: time.Duration(wait) * time.Microsecond}
}

// grantUse is what a reply says of a grant, and whether that can be.
func grantUse(numbers []int64) (*GrantUse, bool) {
	g := &GrantUse{Remaining: numbers[0], Requests: numbers[1], Charged: numbers[2] == 1}
	return g, 0 <= g.Remaining && g.Remaining <= g.Requests && g.Requests <= MaxGrant && (g.Charged || numbers[2] == 0)
}

// admitted is the decision to admit, with so many requests remaining of each limit, and whether every
// limit can have that many. A grant comes on top of the limits of the first budget.
func admitted(remaining []int64, budgets []Budget, grant *GrantUse) (Decision, bool) {
	d := Decision{Allowed: true, Usage: make([]Usage, len(remaining)), Grant: grant}
	least := 0
	for i, r := range remaining {
		budget, limit := window(budgets, i)
		if r < 0 || r > limit.Requests {
			return Decision{}, false
		}
		if grant != nil && budget == 0 {
			r += grant.Remaining
			limit.Requests += grant.Requests
		}
		d.Usage[i] = Usage{Limit: limit, Budget: budget, Remaining: r}
		if r < d.Usage[least].Remaining {
			least = i
		}
	}
	d.Limit, d.Budget, d.Remaining = d.Usage[least].Limit, d.Usage[least].Budget, d.Usage[least].Remaining
	return d, true
}

// windowsOf returns how many limits the budgets have together.
func windowsOf(budgets []Budget) int {
	n := 0
	for _, b := range budgets {
		n += len(b.Limits)
	}
	return n
}

// window returns the limit at an index into the limits of all budgets, and its budget's index.
func window(budgets []Budget, i int) (int, Limit) {
	for budget, b := range budgets {
		if i < len(b.Limits) {
			return budget, b.Limits[i]
		}
		i -= len(b.Limits)
	}
	panic("limiter: no such window")
}

// integers returns the elements of an array reply, and whether it was one of integers only.
func integers(reply any) ([]int64, bool) {
	elements, ok := reply.([]any)
	if !ok {
		return nil, false
	}
	numbers := make([]int64, len(elements))
	for i, element := range elements {
		if numbers[i], ok = element.(int64); !ok {
			return nil, false
		}
	}
	return numbers, true
}

// wholeSeconds rounds microseconds, at least 1, up to whole seconds.
func wholeSeconds(microseconds int64) time.Duration {
	const second = int64(time.Second / time.Microsecond)
	return time.Duration((microseconds-1)/second+1) * time.Second
}
