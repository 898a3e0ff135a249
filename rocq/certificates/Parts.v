(* Scripts with their names, as klsym export writes them, and wrong versions of them, which the checker must refuse. *)
From Coq Require Import List ZArith QArith String Bool.
From Klsym Require Import Setting Ring Statements Rules Checker Completeness Combinations Models Fields Scripts.
Import ListNotations.

Definition named := list (string * script).
Definition all_mean (l : named) : Prop := List.Forall (fun x => meaning (snd x)) l.
Theorem checked l : forallb (fun x => check (snd x)) l = true -> all_mean l.
Proof.
  intros H. rewrite forallb_forall in H. apply List.Forall_forall. intros x I. now apply check_sound, H.
Qed.
Fixpoint part_named (l : named) (n : string) : script :=
  match l with
  | [] => Script (Assume (Premises [] [] None [] []) [] []) [] Proved
  | (m, s) :: l => if String.eqb m n then s else part_named l n end.
Lemma named_means l n : all_mean l -> meaning (part_named l n).
Proof.
  induction l as [|[m s] l IH]; intros H; cbn.
  - intros S par _ _. constructor.
  - inversion_clear H. destruct (String.eqb m n); auto.
Qed.

(* Wrong versions: an equation with one more, or with KL(q||p) more, on its right side; an inequality with one more on its
   left; a refutation said to be a proof; a family moved by a power of k1, or with a constant less; what is no combination,
   of another element, or less what it is made of; a curl of a gradient.  Where something is assumed of the samples, such as
   that none crosses the bound of a region, what is proved with it, without it; and names that are defined in a circle. *)
Definition change_last (f : part -> part) (l : list part) : list part :=
  match rev l with [] => [] | c :: r => rev (f c :: r) end.
Definition with_right (f : side -> side) (c : part) : part :=
  Part (left c) (f (right c)) (rel c) (rows c) (proof c).
Definition left_of (s : script) : side := match rev (parts s) with c :: _ => left c | [] => [] end.
Definition with_names_of (l : list definition) (f : list fact) (a : assumptions) : assumptions :=
  let p := assumed a in Assume (Premises (equal_now p) (equal_always p) (batch_size p) l f) (positive a) (regions a).
Definition wrong_names (s : script) : list script :=
  let p := assumed (given_ s) in
  let again l f := Script (with_names_of l f (given_ s)) (parts s) (end_ s) in
  match end_ s, facts p with Proved, _ :: _ => [again (definitions p) []] | _, _ => [] end
  ++ match definitions p with [] => [] | d :: l => [again (Define (spoken d) Let (var_ (Named (spoken d) 0 Still false)) :: l) (facts p)] end.
Definition wrong_statements (s : script) : list script :=
  let again f e := Script (given_ s) (change_last f (parts s)) e in
  match end_ s with
  | Proved => match rev (parts s) with
      | Part _ _ AtMost _ _ :: _ => [again (fun c => Part ((one, []) :: left c) (right c) AtMost (rows c) (proof c)) Proved]
      | _ => map (fun more => again (with_right (fun r => r ++ [more])) Proved) [(one, []); (one, [Mean Single Mq k1_])] end
  | Refuted _ => [again (fun c => c) Proved]
  | Crossed m => [again (fun c => c) Proved; again (with_right (fun _ => left_of s)) (Crossed m);
      again (fun c => c) (Crossed (Model (map (fun '(u, d) => (u, Node (qs d) (ps d) (mus d) (olds d) (us d) (us d) (pays d))) (nodes m)) (path m) (values m)))]
  | Unique f =>
      let moved := add [(1%Q, [(Sample Whole K1 false, Z.of_nat (order f))], [])] (known_part f) in
      [again (with_right (fun r => r ++ [(one, [])])) (Unique f); again (fun c => c) Proved;
       again (fun c => c) (Unique (Family (coefficient f) (along_w f) (unit_of f) (order f) moved (constants f)));
       again (fun c => c) (Unique (Family (coefficient f) (along_w f) (unit_of f) (pred (order f)) (known_part f) (tl (constants f))))]
  | Independent x => let other f := Independent (Witness (f (scored x)) (first_w x) (further x)) in
      [again (with_right (fun r => r ++ [(one, [])])) (Independent x); again (fun c => c) Proved;
       again (fun c => c) (other (add k1_)); again (with_right (fun _ => left_of s)) (other (fun _ => []))]
  | Curled k i L m =>
      let curl k i L := Script (given_ s) [] (Curled k i L m) in
      [curl k i one; curl Mq Single (mul k1_ k1_); curl Mq Steps (var_ (Sample Now K1 false)); curl Mq BatchSteps L]
  end.
Definition wrong (s : script) : list script := wrong_statements s ++ wrong_names s.
Definition wrong_accepted (l : named) : list string :=
  flat_map (fun x => if existsb check (wrong (snd x)) then [fst x] else []) l.
Definition refused (l : named) : list string := map fst (filter (fun x => negb (check (snd x))) l).
