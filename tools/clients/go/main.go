// Calls the schema registry with franz-go's client, as its users do, and prints the results as one JSON object.
//
// Arguments: the URL of the registry, and optionally a user name and a password.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	subject = "franz-go-value"
	user    = `{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}`
	userV2  = `{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int","default":0}]}`
	userV3  = `{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"id","type":"int"}]}`
)

var results = map[string]any{}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errorCode returns the error code of a response that must be an error.
func errorCode(err error) int {
	var response *sr.ResponseError
	if !errors.As(err, &response) {
		check(fmt.Errorf("expected an error response, got: %v", err))
	}
	return response.ErrorCode
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options := []sr.ClientOpt{sr.URLs(os.Args[1])}
	if len(os.Args) > 2 {
		options = append(options, sr.BasicAuth(os.Args[2], os.Args[3]))
	}
	client := must(sr.NewClient(options...))

	results["types"] = must(client.SupportedTypes(ctx))
	created := must(client.CreateSchema(ctx, subject, sr.Schema{Schema: user}))
	results["created"] = created
	results["created again"] = must(client.CreateSchema(ctx, subject, sr.Schema{Schema: user}))
	found := must(client.LookupSchema(ctx, subject, sr.Schema{Schema: user}))
	results["looked up"] = found
	results["text by id"] = must(client.SchemaTextByID(ctx, found.ID))
	byID := must(client.SchemaByID(ctx, found.ID))
	results["by id"] = byID
	results["subjects by id"] = must(client.SubjectsByID(ctx, found.ID))
	results["versions by id"] = must(client.SchemaVersionsByID(ctx, found.ID))

	results["incompatible"] = must(client.CheckCompatibility(ctx, subject, -1, sr.Schema{Schema: userV3}))
	_, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: userV3})
	results["incompatible registration"] = errorCode(err)
	results["second"] = must(client.CreateSchema(ctx, subject, sr.Schema{Schema: userV2}))
	results["versions"] = must(client.SubjectVersions(ctx, subject))
	results["latest"] = must(client.SchemaByVersion(ctx, subject, -1)).Version
	results["all"] = len(must(client.Schemas(ctx, subject)))
	results["subjects"] = must(client.Subjects(sr.WithParams(ctx, sr.SubjectPrefix("franz-go"))))

	group := sr.Schema{
		Schema:     `{"type":"record","name":"Group","fields":[{"name":"users","type":{"type":"array","items":"User"}}]}`,
		References: []sr.SchemaReference{{Name: "User", Subject: subject, Version: 2}},
	}
	results["referring"] = must(client.CreateSchema(ctx, "franz-go-group", group)).Version
	results["references"] = len(must(client.SchemaReferences(ctx, subject, 2)))
	proto := sr.Schema{Schema: `syntax = "proto3"; message User { string name = 1; }`, Type: sr.TypeProtobuf}
	results["protobuf"] = must(client.CreateSchema(ctx, "franz-go-proto", proto)).Type.String()
	jsonSchema := sr.Schema{Schema: `{"type":"object","properties":{"name":{"type":"string"}}}`, Type: sr.TypeJSON}
	results["json"] = must(client.CreateSchema(ctx, "franz-go-json", jsonSchema)).Type.String()

	for _, each := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, subject) {
		check(each.Err)
	}
	level := client.Compatibility(ctx, subject)[0]
	check(level.Err)
	results["level"] = level.Level.String()
	for _, each := range client.ResetCompatibility(ctx, subject) {
		check(each.Err)
	}
	results["level after reset"] = errorCode(client.Compatibility(ctx, subject)[0].Err)
	global := client.Compatibility(ctx)[0]
	check(global.Err)
	results["global level"] = global.Level.String()

	for _, each := range client.SetMode(ctx, sr.ModeReadOnly, subject) {
		check(each.Err)
	}
	mode := client.Mode(ctx, subject)[0]
	check(mode.Err)
	results["mode"] = mode.Mode.String()
	_, err = client.CreateSchema(ctx, subject, sr.Schema{Schema: `"string"`})
	results["read-only registration"] = errorCode(err)
	for _, each := range client.ResetMode(ctx, subject) {
		check(each.Err)
	}

	lab := must(sr.NewClient(append(options, sr.DefaultSchemaContext(".franz"))...))
	results["in context"] = must(lab.CreateSchema(ctx, "orders", sr.Schema{Schema: user})).Subject
	results["contexts"] = must(client.Contexts(sr.WithParams(ctx, sr.ContextPrefix(".franz"))))

	check(client.DeleteSchema(ctx, "franz-go-group", 1, sr.SoftDelete))
	check(client.DeleteSchema(ctx, "franz-go-group", 1, sr.HardDelete))
	results["deleted"] = must(client.DeleteSubject(ctx, subject, sr.SoftDelete))
	_, err = client.SubjectVersions(ctx, subject)
	results["deleted versions"] = errorCode(err)
	results["deleted permanently"] = must(client.DeleteSubject(ctx, subject, sr.HardDelete))

	check(json.NewEncoder(os.Stdout).Encode(results))
}
