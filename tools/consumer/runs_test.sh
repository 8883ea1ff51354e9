#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: runs_test.sh PROGRAM ARGUMENT...   The program ends with exit code 0.
set -eu
exec "$@"
