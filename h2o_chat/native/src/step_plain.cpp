#include "lanes_plain.h"
#include "step.h"
#include "compare.h"

const Form form_plain = {decode, embed, before, after, head, compare};
