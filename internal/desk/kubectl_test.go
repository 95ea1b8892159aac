// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// TestPlugin goes the whole way: kubectl, the plugin, the API server, a kubelet, the admin API.
func TestPlugin(t *testing.T) {
	api := startAdmin(t, true, map[string]any{getQuota: blocked})
	space := namespace(t)
	cluster.StartKubelet(t).Pod(t, space, "tierlimit-a", 8444, api.address(), nil)
	admin := cluster.Kubeconfig(t, "alice", "system:masters")

	output, err := kubectl(t, admin, "tierlimit", "get", "8421", "--tier", "free", "-n", space)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	want := `USER   TIER   WINDOW   LIMIT   USED   REMAINING   NEXT SLOT   EMPTY    LAST REQUESTS
8421   free   minute   5       5      0           in 12s      in 58s   2s, 9s ago
8421   free   day      100     42     58          in 3h       in 24h   2s ago

Blocked by the minute for 12s, until 09:00:12 UTC.
Granted: 100 extra requests, 100 used, 0 left; lapses in 60m (10:00:00 UTC).
The same user was lately seen as user 8421 of tenant acme with tier pro, which is another budget.
`
	if diff := cmp.Diff(want, output); diff != "" {
		t.Errorf("kubectl tierlimit get prints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]asked{{Method: "GET", Path: adminapi.PathQuota, Query: "last=5&tier=free&user=8421", Certificate: "alice"}}, api.requests()); diff != "" {
		t.Errorf("the admin API was asked (-want +got):\n%s", diff)
	}
	output, err = kubectl(t, admin, "tierlimit", "get", "8421", "-n", space, "-o", "json")
	var quota adminapi.Quota
	if err != nil || json.Unmarshal([]byte(output), &quota) != nil || !cmp.Equal(quota, blocked) {
		t.Errorf("-o json: %v\n%s", err, output)
	}
}
