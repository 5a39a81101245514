/* SPDX-License-Identifier: Apache-2.0
 * Fits a line, in C11: builds a graph, trains it, reads the weights back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/tenon.h>

static tenon_str str(const char* s) {
  tenon_str out = {s, strlen(s)};
  return out;
}

/* Every call that can fail returns a status; NULL means that it succeeded. */
static void must(tenon_status* status) {
  if (!status) return;
  const tenon_str text = tenon_status_text(status);
  fprintf(stderr, "line: %.*s\n", (int)text.size, text.data);
  tenon_status_release(status);
  exit(1);
}

/* Adds a node of one output. kind may be NULL; b may be TENON_NONE. */
static tenon_value node(tenon_graph* g, const char* op, const char* kind, tenon_value a, tenon_value b) {
  const tenon_value operands[2] = {a, b};
  tenon_arg attribute;
  memset(&attribute, 0, sizeof attribute);
  attribute.name = str("kind");
  attribute.type = TENON_ARG_STR;
  attribute.str = str(kind ? kind : "");
  tenon_node_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.struct_size = sizeof desc;
  desc.op = str(op);
  desc.operands = operands;
  desc.operand_count = b == TENON_NONE ? 1 : 2;
  desc.attributes = &attribute;
  desc.attribute_stride = sizeof attribute;
  desc.attribute_count = kind ? 1 : 0;
  desc.output_count = 1;
  desc.provenance = str("line");
  tenon_value out = TENON_NONE;
  must(tenon_graph_add_node(g, &desc, &out));
  return out;
}

static tenon_tensor matrix(const int64_t* dims, float* data) {
  tenon_tensor t;
  memset(&t, 0, sizeof t);
  t.struct_size = sizeof t;
  t.dtype = TENON_DTYPE_F32;
  t.rank = 2;
  t.dims = dims;
  t.data = data;
  t.size = (uint64_t)(dims[0] * dims[1]) * sizeof(float);
  return t;
}

int main(void) {
  tenon_runtime* runtime = NULL;
  tenon_graph* g = NULL;
  tenon_store* store = NULL;
  tenon_executable* step = NULL;
  tenon_context* run = NULL;
  must(tenon_runtime_create(NULL, &runtime)); /* loads the plugins */
  must(tenon_graph_create(str("line"), &g));

  /* The graph: mean((x w - t)^2), and a step of gradient descent. */
  const int64_t xd[2] = {4, 2}, td[2] = {4, 1}, wd[2] = {2, 1};
  tenon_value x, t, w, rate, norm;
  must(tenon_graph_input(g, str("x"), TENON_DTYPE_F32, 2, xd, &x));
  must(tenon_graph_input(g, str("t"), TENON_DTYPE_F32, 2, td, &t));
  must(tenon_graph_weight(g, str("w"), TENON_DTYPE_F32, 2, wd, 1, &w));
  const float tenth = 0.1f;
  must(tenon_graph_constant(g, TENON_DTYPE_F32, 0, NULL, &tenth, sizeof tenth, &rate));
  const tenon_value d = node(g, "binary", "sub", node(g, "matmul", NULL, x, w), t);
  const tenon_value loss = node(g, "reduce", "mean", node(g, "unary", "square", d, TENON_NONE), TENON_NONE);
  must(tenon_graph_output(g, str("loss"), loss));
  tenon_optimizer sgd;
  memset(&sgd, 0, sizeof sgd);
  sgd.struct_size = sizeof sgd;
  sgd.kind = TENON_OPTIMIZER_SGD;
  sgd.learning_rate = rate;
  must(tenon_graph_minimize(g, loss, &sgd, &norm));

  /* The store holds the weights; the context is one run in flight. */
  float weights[2] = {0, 0}, xs[8] = {1, 0, 0, 1, 1, 1, 2, 1}, ts[4] = {2, -1, 1, 3};
  tenon_tensor tensor = matrix(wd, weights);
  must(tenon_store_create(runtime, &store));
  must(tenon_store_set(store, TENON_SPACE_WEIGHT, str("w"), &tensor));
  must(tenon_store_add_missing(store, g));
  must(tenon_executable_create(runtime, g, store, NULL, &step));
  must(tenon_context_create(step, &run));
  tensor = matrix(xd, xs);
  must(tenon_context_set(run, str("x"), &tensor));
  tensor = matrix(td, ts);
  must(tenon_context_set(run, str("t"), &tensor));

  float first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    must(tenon_context_run(run));
    must(tenon_context_get(run, str("loss"), &last, sizeof last));
    if (i == 0) first = last;
  }
  must(tenon_store_get(store, TENON_SPACE_WEIGHT, str("w"), weights, sizeof weights));
  printf("loss %g -> %g, w = %g %g\n", first, last, weights[0], weights[1]);

  tenon_context_destroy(run);
  tenon_executable_destroy(step);
  tenon_store_destroy(store);
  tenon_graph_destroy(g);
  tenon_runtime_destroy(runtime);
  /* The data lie on t = 2 x0 - x1. */
  const int fits = weights[0] > 1.99f && weights[0] < 2.01f && weights[1] > -1.01f && weights[1] < -0.99f;
  return first == 3.75f && last < 1e-6f && fits ? 0 : 1;
}
