"""A step's result: taken at once, stored without pickle, compared structure first and then leaf by leaf."""
