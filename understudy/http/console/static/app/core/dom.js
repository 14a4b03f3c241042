// Preact and htm, bound to each other: every module takes `html` and the hooks from here.
import {h, render, createContext, Fragment} from "../../vendor/preact.js";
import {
  useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "../../vendor/hooks.js";
import htm from "../../vendor/htm.js";

export const html = htm.bind(h);
export {
  Fragment, createContext, render, useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState,
};
