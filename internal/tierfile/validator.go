// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/config/crd"
)

// validator applies the rules of the CustomResourceDefinition with the API server's own code.
type validator struct {
	structural *schema.Structural
	openAPI    validation.SchemaValidator
	cel        *cel.Validator
}

func newValidator() (*validator, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crd.RateLimitTiers, &definition); err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition: %w", err)
	}
	var properties apiextensions.JSONSchemaProps
	v1 := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, &properties, nil); err != nil {
		return nil, fmt.Errorf("converting the CustomResourceDefinition: %w", err)
	}
	structural, err := schema.NewStructural(&properties)
	if err != nil {
		return nil, fmt.Errorf("compiling the CustomResourceDefinition: %w", err)
	}
	openAPI, _, err := validation.NewSchemaValidator(&properties)
	if err != nil {
		return nil, fmt.Errorf("compiling the CustomResourceDefinition: %w", err)
	}
	return &validator{
		structural: structural,
		openAPI:    openAPI,
		cel:        cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// problem is a fault in one field. path is "" when it concerns the whole object; line is the line
// of the file where that is known already.
type problem struct {
	path    string
	line    int
	message string
}

// tier defaults and validates an object as the API server does for `kubectl apply`, in its order:
// no unknown field, then ranges and enums, then CEL rules. It returns the typed object or what is
// wrong.
func (v *validator) tier(object map[string]any) (*v1alpha1.RateLimitTier, []problem) {
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, []problem{{path: "metadata", message: err.Error()}}
	}
	if !found {
		meta = &metav1.ObjectMeta{}
	}
	unknown = append(unknown, pruning.PruneWithOptions(object, v.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	problems := unknownFields(unknown)
	delete(object, "status") // only a controller writes it
	defaulting.PruneNonNullableNullsWithoutDefaults(object, v.structural)
	defaulting.Default(object, v.structural)

	errs := metadataErrors(meta)
	errs = append(errs, validation.ValidateCustomResource(nil, object, v.openAPI)...)
	if !blockRules(errs) {
		ruleErrs, _ := v.cel.Validate(context.Background(), nil, v.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, ruleErrs...)
	}
	problems = append(problems, fieldProblems(errs)...)
	if len(problems) > 0 {
		return nil, problems
	}
	var typed v1alpha1.RateLimitTier
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &typed); err != nil {
		return nil, []problem{{message: err.Error()}}
	}
	return &typed, nil
}

// metadataErrors applies Kubernetes' own rules for names, labels and annotations.
func metadataErrors(meta *metav1.ObjectMeta) field.ErrorList {
	meta.Namespace = "" // as the API server does for a kind without namespaces
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMeta(meta, false, apivalidation.NameIsDNSSubdomain, path)
	if meta.Name == "" && meta.GenerateName != "" {
		errs = append(errs, field.Required(path.Child("name"), "a tier in a file needs a name"))
	}
	return errs
}

// blockRules returns whether errors keep CEL rules from being evaluated: rules rely on the types
// and sizes that the schema promises. It is the choice of the API server.
func blockRules(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		default:
			return false
		}
	})
}

func fieldProblems(errs field.ErrorList) []problem {
	problems := make([]problem, 0, len(errs))
	for _, err := range errs {
		if path, ok := strings.CutPrefix(err.Field, "<nil>"); ok { // how a field.Path prints the object itself
			err.Field = path
		}
		problems = append(problems, problem{path: err.Field, message: strings.TrimPrefix(err.Error(), ": ")})
	}
	return problems
}

func unknownFields(paths []string) []problem {
	problems := make([]problem, 0, len(paths))
	for _, path := range paths {
		problems = append(problems, problem{path: path, message: fmt.Sprintf("unknown field %q", path)})
	}
	return problems
}
