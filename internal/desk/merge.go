// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import "github.com/tierlimit/tierlimit/internal/adminapi"

func mergeTop(all []adminapi.Top, _ int) adminapi.Top                { return all[0] }
func mergeDecisions(all []adminapi.Decisions) adminapi.Decisions     { return all[0] }
func mergeSimulations(all []adminapi.Simulation) adminapi.Simulation { return all[0] }
