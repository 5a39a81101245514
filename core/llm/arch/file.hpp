// SPDX-License-Identifier: Apache-2.0
// Small files of model folders, for the engine.
#pragma once

#include "llm/model_folder.hpp"
