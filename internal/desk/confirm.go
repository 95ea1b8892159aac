// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// change is a command that changes something, and so asks before.
type change struct {
	d       *desk
	subject subjectFlags
	output  output
	yes     bool
}

func (c *change) add(command *cobra.Command) {
	c.subject.add(command)
	c.output.add(command, formatJSON, formatYAML)
	command.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
}

// errNotConfirmed is the answer of whoever was asked.
var errNotConfirmed = errors.New("nothing was changed")

// confirmable returns an error if nobody can be asked and there is no --yes. It is called before
// anything is asked of a replica.
func (d *desk) confirmable(yes bool) error {
	if yes || terminal(d.Streams.In) {
		return nil
	}
	return usagef("there is no terminal to ask for confirmation on: give --yes if you are sure")
}

// confirm asks on the terminal.
func (d *desk) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(d.Streams.ErrOut, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(d.Streams.In).ReadString('\n') // the end of the input is a no
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(d.Streams.ErrOut)
	}
	return errNotConfirmed
}

// show prints what get shows of the subject, and returns it, before a question. Whoever may change a
// budget may not always see it; then it returns nil, and the question stands alone.
func (c *change) show(ctx context.Context, all *replicas, query url.Values) (*adminapi.Quota, error) {
	if c.yes {
		return nil, nil
	}
	var quota adminapi.Quota
	_, err := all.one(ctx, request{http.MethodGet, adminapi.PathQuota, query}, &quota)
	var answer *refused
	switch {
	case errors.As(err, &answer) && answer.status == http.StatusForbidden:
		c.d.warn("you may not see what is left of the user's budget (ClusterRole %s)", roleOf(answer.request))
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := printQuota(c.d.Streams.ErrOut, quota, false); err != nil {
		return nil, err
	}
	fmt.Fprintln(c.d.Streams.ErrOut)
	return &quota, nil
}

// carryOut shows what there is, asks, changes it and says what was done.
func carryOut[T any](c *change, command *cobra.Command, args []string, question func(*adminapi.Quota, string) string, what request, said func(T) string) error {
	if err := c.output.validate(); err != nil {
		return err
	}
	if err := c.d.confirmable(c.yes); err != nil {
		return err
	}
	ctx := command.Context()
	all, err := c.d.connect(ctx)
	if err != nil {
		return err
	}
	defer all.close()
	quota, err := c.show(ctx, all, c.subject.query(args))
	if err != nil {
		return err
	}
	if err := c.d.confirm(ctx, c.yes, question(quota, whom(c.subject, args))); err != nil {
		return err
	}
	var result T
	body, err := all.one(ctx, what, &result)
	if err != nil {
		return err
	}
	if c.output.raw() {
		return c.output.print(c.d.Streams.Out, body)
	}
	fmt.Fprintln(c.d.Streams.Out, said(result))
	return nil
}

// whom describes who was named on the command line.
func whom(s subjectFlags, args []string) string {
	subject := adminapi.Subject{Kind: s.kind, Tenant: s.tenant, Route: s.route}
	if len(args) == 1 {
		subject.User = args[0]
	}
	return describe(subject)
}

// changed says what was done, from when on it holds everywhere, and under which name it can be found.
func changed(done string, milliseconds int64, id, tier string) string {
	return done + " " + everywhere(milliseconds) + "\n" + audit(id, tier)
}

// everywhere says by when all replicas know of a change.
func everywhere(milliseconds int64) string {
	if milliseconds <= 0 {
		return "Every replica knows it now."
	}
	return fmt.Sprintf("Every replica knows it within %v.", time.Duration(milliseconds)*time.Millisecond)
}

// audit says where a change can be found again.
func audit(id, tier string) string {
	return fmt.Sprintf("Audit ID %s (in the log and, in a cluster, in the Events of the tier %s).", printable(id), named(tier))
}
