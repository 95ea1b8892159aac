// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is version v1alpha1 of the tierlimit.dev API group. Its one kind, the
// cluster-scoped RateLimitTier, declares how many requests a user of a tier may make.
//
// +kubebuilder:object:generate=true
// +groupName=tierlimit.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "tierlimit.dev", Version: "v1alpha1"}

// KindRateLimitTier is the kind of a RateLimitTier object.
const KindRateLimitTier = "RateLimitTier"

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &RateLimitTier{}, &RateLimitTierList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
