/* SPDX-License-Identifier: Apache-2.0
 * A host app in C11: builds a graph, trains a few steps, reads outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/tenon.h>

static tenon_str str(const char* s) {
  tenon_str out = {s, strlen(s)};
  return out;
}

static void must(tenon_status* status) {
  if (!status) return;
  const tenon_str text = tenon_status_text(status);
  fprintf(stderr, "host.c: %.*s\n", (int)text.size, text.data);
  tenon_status_release(status);
  exit(1);
}

static tenon_value node(tenon_graph* g, const char* op, const char* kind, tenon_value a, tenon_value b) {
  const tenon_value operands[2] = {a, b};
  tenon_arg arg;
  memset(&arg, 0, sizeof arg);
  arg.name = str("kind");
  arg.type = TENON_ARG_STR;
  arg.str = str(kind ? kind : "");
  tenon_value out = TENON_NONE;
  must(tenon_graph_add_node(g, str("tenon"), str(op), 1, operands, b == TENON_NONE ? 1 : 2, &arg, kind ? 1 : 0, NULL, 1,
                            str("host"), &out));
  return out;
}

int main(void) {
  tenon_runtime* runtime = NULL;
  tenon_graph* g = NULL;
  tenon_store* store = NULL;
  tenon_executable* step = NULL;
  tenon_context* run = NULL;
  must(tenon_runtime_create(NULL, &runtime));
  must(tenon_graph_create(str("line"), &g));

  const int64_t xd[2] = {4, 2}, td[2] = {4, 1}, wd[2] = {2, 1};
  tenon_value x, t, w, lr, norm;
  must(tenon_graph_input(g, str("x"), TENON_DTYPE_F32, 2, xd, &x));
  must(tenon_graph_input(g, str("t"), TENON_DTYPE_F32, 2, td, &t));
  must(tenon_graph_weight(g, str("w"), TENON_DTYPE_F32, 2, wd, 1, &w));
  must(tenon_graph_input(g, str("lr"), TENON_DTYPE_F32, 0, NULL, &lr));
  const tenon_value y = node(g, "matmul", NULL, x, w);
  const tenon_value d = node(g, "binary", "sub", y, t);
  const tenon_value loss = node(g, "reduce", "mean", node(g, "unary", "square", d, TENON_NONE), TENON_NONE);
  must(tenon_graph_output(g, str("loss"), loss));
  tenon_optimizer sgd;
  memset(&sgd, 0, sizeof sgd);
  sgd.struct_size = sizeof sgd;
  sgd.kind = TENON_OPTIMIZER_SGD;
  sgd.learning_rate = lr;
  must(tenon_graph_minimize(g, loss, &sgd, &norm));

  must(tenon_store_create(runtime, &store));
  float weights[2] = {0, 0}, xs[8] = {1, 0, 0, 1, 1, 1, 2, 1}, ts[4] = {2, -1, 1, 3}, rate = 0.1f;
  tenon_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  tensor.dtype = TENON_DTYPE_F32;
  tensor.rank = 2;
  tensor.dims = wd;
  tensor.data = weights;
  tensor.size = sizeof weights;
  must(tenon_store_set(store, TENON_SPACE_WEIGHT, str("w"), &tensor));
  must(tenon_store_add_missing(store, g));
  must(tenon_executable_create(runtime, g, store, NULL, &step));
  must(tenon_context_create(step, &run));
  tensor.dims = xd, tensor.data = xs, tensor.size = sizeof xs;
  must(tenon_context_set(run, str("x"), &tensor));
  tensor.dims = td, tensor.data = ts, tensor.size = sizeof ts;
  must(tenon_context_set(run, str("t"), &tensor));
  tensor.rank = 0, tensor.dims = NULL, tensor.data = &rate, tensor.size = sizeof rate;
  must(tenon_context_set(run, str("lr"), &tensor));

  float first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    must(tenon_context_run(run));
    must(tenon_context_get(run, str("loss"), &last, sizeof last));
    if (i == 0) first = last;
  }
  must(tenon_store_get(store, TENON_SPACE_WEIGHT, str("w"), weights, sizeof weights));
  printf("host.c: loss %g -> %g, w = %g %g\n", first, last, weights[0], weights[1]);

  /* The data lie on t = 2 x0 - x1, exactly. */
  const int good = first == 3.75f && last < 1e-6f && weights[0] > 1.99f && weights[0] < 2.01f && weights[1] > -1.01f && weights[1] < -0.99f;
  tenon_context_destroy(run);
  tenon_executable_destroy(step);
  tenon_store_destroy(store);
  tenon_graph_destroy(g);
  tenon_runtime_destroy(runtime);
  return good ? 0 : 1;
}
