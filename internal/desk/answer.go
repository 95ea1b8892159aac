// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// foreign is the error of an answer that is not one of the admin API.
type foreign struct{ replica, why string }

func (e *foreign) Error() string {
	return "the answer of " + e.replica + " is not that of an admin API: " + e.why + ". Is another program at this address?"
}

// decode decodes an answer. One without what every answer of its kind has is an error: it must not be
// taken for something that was done.
func (r *replica) decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of %s is not understood (%w): the versions of client and server differ too much", r.name, err)
	}
	if field := missing(into); field != "" {
		return &foreign{r.name, "it has no " + field}
	}
	return nil
}

// missing returns the name of a field that every answer of this type has and this one has not, or "".
func missing(answer any) string {
	fields := map[string]bool{} // whether they are there
	switch a := answer.(type) {
	case *adminapi.Quota:
		fields["auditID"], fields["tier"] = a.AuditID != "", a.Tier.Name != ""
	case *adminapi.Explanation:
		fields["outcome"], fields["status"] = a.Outcome != "", a.Status != 0
	case *adminapi.ResetResult:
		fields["auditID"], fields["tier"] = a.AuditID != "", a.Tier != ""
	case *adminapi.GrantResult:
		fields["auditID"], fields["tier"] = a.AuditID != "", a.Tier != ""
	case *adminapi.Top:
		fields["replicas"] = len(a.Replicas) > 0
	case *adminapi.Decisions:
		fields["replicas"] = len(a.Replicas) > 0
	case *adminapi.Simulation:
		fields["replicas"], fields["tier"] = len(a.Replicas) > 0, a.Tier.Name != ""
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !fields[field] {
			return field
		}
	}
	return ""
}
