(* Scripts with their names, as klsym export writes them, and wrong versions of them, which the checker must refuse. *)
From Coq Require Import List ZArith QArith String Bool.
From Klsym Require Import Setting Ring Statements Rules Checker Completeness Models.
Import ListNotations.

Definition named := list (string * script).
Definition all_mean (l : named) : Prop := List.Forall (fun x => meaning (snd x)) l.
Theorem checked l : forallb (fun x => check (snd x)) l = true -> all_mean l.
Proof.
  intros H. rewrite forallb_forall in H. apply List.Forall_forall. intros x I. now apply check_sound, H.
Qed.
Fixpoint part_named (l : named) (n : string) : script :=
  match l with
  | [] => Script (Assume (Premises [] [] None) [] []) [] Proved
  | (m, s) :: l => if String.eqb m n then s else part_named l n end.
Lemma named_means l n : all_mean l -> meaning (part_named l n).
Proof.
  induction l as [|[m s] l IH]; intros H; cbn.
  - intros S par _ _. constructor.
  - inversion_clear H. destruct (String.eqb m n); auto.
Qed.

(* Wrong versions: one more on the right side; the right side twice; a refutation said to be a proof; a theorem said to be
   refuted by a model in which all is as general as can be; a family moved by a power of k1, or with a constant less. *)
Definition change_last (f : part -> part) (l : list part) : list part :=
  match rev l with [] => [] | c :: r => rev (f c :: r) end.
Definition with_right (f : side -> side) (c : part) : part :=
  Part (left c) (f (right c)) (rel c) (rows c) (proof c).
Definition some_model : model :=
  Model [1#5; 1#3; 7#15] [1#7; 2#7; 4#7] [1#2; 1#8; 3#8] [1; 0; 3#4] [[1; 2; 5]; [1; -1; 3]; [2; 1; -3]] 1
    [3; 2; 5; 7; 11; 13; 17].
Definition wrong (s : script) : list script :=
  let again f e := Script (given_ s) (change_last f (parts s)) e in
  match end_ s with
  | Proved => [again (with_right (fun r => r ++ [(one, [])])) Proved; again (fun c => c) (Refuted some_model)]
  | Refuted _ => [again (fun c => c) Proved]
  | Unique f =>
      let moved := add [(1%Q, [(Sample Whole K1 false, Z.of_nat (order f))], [])] (known_part f) in
      [again (with_right (fun r => r ++ [(one, [])])) (Unique f); again (fun c => c) Proved;
       again (fun c => c) (Unique (Family (coefficient f) (along_w f) (unit_of f) (order f) moved (constants f)));
       again (fun c => c) (Unique (Family (coefficient f) (along_w f) (unit_of f) (pred (order f)) (known_part f) (tl (constants f))))]
  end.
Definition wrong_accepted (l : named) : list string :=
  flat_map (fun x => if existsb check (wrong (snd x)) then [fst x] else []) l.
Definition refused (l : named) : list string := map fst (filter (fun x => negb (check (snd x))) l).
